-- What Claude Recall's scripts share: when a memory was said, and which project a call is about.
local shared = {}

-- When it was said. (An older store kept an imported memory's time as the date of an event, without an end.)
function shared.moment(record)
  if record.event_date and not record.event_end and record.timestamp == record.created then return time.iso(record.event_date) end
  return record.said
end

-- The name under which a memory is known to this dialect.
function shared.name(record) return record.aliases["claude-recall"] end

shared.SUPERSEDES = {
  type = "array",
  items = { type = "string" },
  description = "Ids of memories that this makes untrue: they are replaced by it, and kept. A plan that happened or a one-off beside a habit makes nothing untrue",
}

-- Memories that a write names, under the names of this dialect; nil if there are none.
function shared.named(memories, context)
  local shown = json.array({})
  for _, memory in ipairs(memories) do
    local record = context.memory.get(memory.id)
    if record then shown[#shown + 1] = { id = shared.name(record), content = memory.text, said = memory.said, score = memory.score } end
  end
  return #shown > 0 and shown or nil
end

-- The reply to a write, with what it replaced and what is similar, if there is any.
function shared.written(stored, reply, context)
  reply.superseded = shared.named(stored.superseded, context)
  reply.similar = shared.named(stored.similar, context)
  if reply.similar then
    reply.hint = "Does this make one of these untrue? Then call supersede_memory with its id; otherwise do nothing."
  end
  return reply
end

-- What a memory may be of; anything else is a preference.
shared.TYPES = { preference = true, correction = true, devops = true, failure = true, ["project-knowledge"] = true, ["tool-use"] = true }

shared.PROJECT = { type = "string", minLength = 1, maxLength = 500, description = "The project; absent: the folder in which this connection was started" }

-- The project that is named, else the connection's own; nil where there is none.
function shared.project(params, context) return params.projectId or context.session.project end

-- What holds in a project: what is bound to none, and what is bound to it. The label of a memory is its project.
function shared.within(filter, project)
  filter.any = json.array({ { label = { exists = false } } })
  if project then filter.any[2] = { label = project } end
  return filter
end

-- The checkpoint of a project, as it is kept; nil where there is none.
function shared.checkpoint(project, context)
  return context.memory.list({ filter = { kind = "checkpoint", label = project }, order = "-updated", limit = 1 }).items[1]
end

-- The project of a checkpoint, which there must be.
function shared.named_project(params, context)
  local project = shared.project(params, context)
  if not project then
    error.throw({ kind = "invalid_params", message = "this connection was started in no project: name it with projectId" })
  end
  return project
end

return shared
