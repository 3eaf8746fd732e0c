-- POST /api/v1/prune/execute: archives the conversations, all or none. Nothing is deleted.
tool = {
  name = "rest_archive",
  description = "Archive conversations over Sekha's REST",
  parameters = {
    type = "object",
    properties = { conversation_ids = { type = "array", items = shared.ID, minItems = 1, maxItems = 1000 } },
    required = { "conversation_ids" },
  },
}

function tool.execute(params, context)
  for _, id in ipairs(params.conversation_ids) do
    context.memory.update(shared.conversation(id, context).id, { status = "archived" })
  end
  return { success = true, archived = #params.conversation_ids }
end
