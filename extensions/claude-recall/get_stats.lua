tool = {
  name = "get_stats",
  description = "Get memory usage statistics",
  annotations = { read_only = true, idempotent = true, open_world = false },
  parameters = { type = "object", properties = {} },
}

local function size(bytes)
  if bytes < 1024 * 1024 then return string.format("%.1f KB", bytes / 1024) end
  return string.format("%.1f MB", bytes / 1024 / 1024)
end

function tool.execute(_, context)
  local stats = context.memory.stats({ filter = { kind = "fact" }, group_by = "metadata.type" })
  local types = json.object({})
  for _, group in ipairs(stats.groups) do
    local name = type(group.value) == "string" and group.value or "general"
    types[name] = (types[name] or 0) + group.count
  end
  local started = context.session.started_at
  return {
    totalMemories = stats.count,
    sessionMemories = context.memory.count({ filter = { kind = "fact", session = context.session.id } }),
    memoryTypes = types,
    lastMemoryTimestamp = stats.last_created and time.iso(stats.last_created) or json.null,
    sessionStartTime = started and time.iso(started) or json.null,
    databaseSize = size(context.health().database_bytes),
  }
end
