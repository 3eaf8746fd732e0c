-- A folder means everything below it, as it does for search; a label is exact.
tool = {
  name = "memory_stats",
  description = "Statistics about stored conversations, of all, of a folder or of a label",
  annotations = { read_only = true, idempotent = true, open_world = false },
  parameters = {
    type = "object",
    properties = {
      folder = { type = "string", description = "Get stats for specific folder" },
      label = { type = "string", description = "Get stats for specific label" },
    },
  },
}

function tool.execute(params, context)
  if params.folder and params.label then
    return { success = false, data = json.null, error = "Cannot specify both folder and label" }
  end
  local filter = { kind = "conversation" }
  if params.folder then filter.folder = { under = params.folder } end
  if params.label then filter.label = params.label end
  local stats = context.memory.stats({ filter = filter, group_by = "folder" })
  local data = {
    total_conversations = stats.count,
    average_importance = math.floor((stats.average_importance or 0) * 10 + 0.5) / 10,
  }
  if params.label then
    data.labels = json.array({ params.label })
  elseif params.folder then
    data.folders = json.array({ (string.gsub(params.folder, "(.)/+$", "%1")) })
  else
    data.folders = json.array({})
    for _, group in ipairs(stats.groups) do
      if group.value then data.folders[#data.folders + 1] = group.value end
    end
    table.sort(data.folders)
  end
  return { success = true, data = data, error = json.null }
end
