-- Stores a rule or a lesson, for every project or for this one alone.
tool = {
  name = "store_memory",
  description = "Store a rule or learning: a preference, a correction, a failure, a rule of operation. It holds at once",
  annotations = { read_only = false, destructive = false, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      content = { type = "string", minLength = 1, description = "The rule or learning" },
      metadata = { type = "object", description = "Anything to keep with it; `type`: preference, correction, devops, failure, project-knowledge, tool-use" },
      scope = { type = "string", enum = { "universal", "project" }, default = "universal", description = "Where it holds: in every project, or in this one" },
      projectId = shared.PROJECT,
      supersedes = shared.SUPERSEDES,
    },
    required = { "content" },
  },
}

function tool.execute(params, context)
  local metadata = params.metadata or {}
  local kind = shared.TYPES[metadata.type] and metadata.type or "preference"
  metadata.type = kind
  local supersedes = params.supersedes or metadata.supersedes
  metadata.supersedes = nil
  local stored = context.memory.put({
    text = params.content,
    metadata = metadata,
    session = context.session.id,
    supersedes = supersedes,
    label = params.scope == "project" and shared.named_project(params, context) or nil,
  })
  return shared.written(stored, {
    id = shared.name(context.memory.get(stored.id)),
    success = true,
    activeRule = "Stored as active rule:\n- " .. params.content,
    type = kind,
    flags = #stored.flags > 0 and json.array(stored.flags) or nil,
    op_id = stored.op_id,
  }, context)
end
