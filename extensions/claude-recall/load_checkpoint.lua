-- Where the task stood when it was left.
tool = {
  name = "load_checkpoint",
  description = "Load the project's checkpoint: what was finished, what remains, what blocks it",
  annotations = { read_only = true, idempotent = true, open_world = false },
  parameters = { type = "object", properties = { projectId = shared.PROJECT } },
}

function tool.execute(params, context)
  local project = shared.named_project(params, context)
  local checkpoint = shared.checkpoint(project, context)
  if not checkpoint then return { found = false, projectId = project } end
  local parts = checkpoint.metadata
  return {
    found = true,
    projectId = project,
    completed = parts.completed,
    remaining = parts.remaining,
    blockers = parts.blockers,
    notes = parts.notes or json.null,
    updated_at = checkpoint.updated,
    updated_at_iso = time.iso(checkpoint.updated),
  }
end
