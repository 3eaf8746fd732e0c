-- Suggests only; nothing is archived or deleted here. Importance 10 is pinned.
tool = {
  name = "memory_prune",
  description = "Suggest old, unimportant conversations to archive",
  annotations = { read_only = true, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      threshold_days = { type = "integer", minimum = 0, default = 30, description = "Consider conversations older than X days" },
      importance_threshold = { type = "number", minimum = 0, maximum = 10, default = 5.0, description = "Consider conversations with score <= X" },
    },
  },
}

function tool.execute(params, context)
  local suggestions, savings = shared.prunable(params.threshold_days, params.importance_threshold, context)
  return {
    success = true,
    data = {
      threshold_days = params.threshold_days,
      importance_threshold = params.importance_threshold,
      total_suggestions = #suggestions,
      estimated_token_savings = savings,
      suggestions = suggestions,
    },
    error = json.null,
  }
end
