-- POST /api/v1/prune/dry-run: what could be archived. Nothing is changed.
tool = {
  name = "rest_prune",
  description = "Suggest what to archive over Sekha's REST",
  parameters = {
    type = "object",
    properties = {
      threshold_days = { type = "integer", minimum = 0, default = 30 },
      importance_threshold = { type = "number", minimum = 0, maximum = 10, default = 5 },
    },
  },
}

function tool.execute(params, context)
  local suggestions, savings = shared.prunable(params.threshold_days, params.importance_threshold, context)
  return { suggestions = suggestions, total = #suggestions, estimated_token_savings = savings }
end
