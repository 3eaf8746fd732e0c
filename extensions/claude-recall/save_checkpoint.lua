-- Keeps where a task stands. A project has one checkpoint; the one before stays in its history.
tool = {
  name = "save_checkpoint",
  description = "Save where the task stands: what is finished, what remains, what blocks it. It takes the place of the project's earlier checkpoint",
  annotations = { read_only = false, destructive = false, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      completed = { type = "string", maxLength = 20000, description = "What is finished" },
      remaining = { type = "string", maxLength = 20000, description = "What is left to do" },
      blockers = { type = "string", maxLength = 20000, description = "What blocks it, or 'none'" },
      notes = { type = "string", maxLength = 20000, description = "Anything else: files, references" },
      projectId = shared.PROJECT,
    },
    required = { "completed", "remaining", "blockers" },
  },
}

function tool.execute(params, context)
  local project = shared.named_project(params, context)
  local parts = { completed = params.completed, remaining = params.remaining, blockers = params.blockers, notes = params.notes }
  local lines = {}
  for _, name in ipairs({ "completed", "remaining", "blockers", "notes" }) do
    if parts[name] then lines[#lines + 1] = name .. ": " .. parts[name] end
  end
  local fields = { text = table.concat(lines, "\n"), metadata = json.object(parts) }
  local checkpoint = shared.checkpoint(project, context)
  local op_id
  if checkpoint then
    op_id = context.memory.update(checkpoint.id, fields).op_id
  else
    fields.kind, fields.label, fields.session = "checkpoint", project, context.session.id
    op_id = context.memory.put(fields).op_id
  end
  return { success = true, projectId = project, message = "Checkpoint saved for project: " .. project, op_id = op_id or json.null }
end
