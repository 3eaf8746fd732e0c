-- The rules that hold here, by kind, as text: what is superseded or forgotten is not among them.
tool = {
  name = "load_rules",
  description = "Load the rules that hold before starting work: preferences, corrections, failures, rules of operation. Call it once at the start of a task",
  annotations = { read_only = true, idempotent = true, open_world = false },
  parameters = { type = "object", properties = { projectId = shared.PROJECT } },
}

local MOST = 50 -- of a kind, the latest: more would cost a conversation its room
local KINDS = {
  { type = "preference", title = "Preferences", count = "preferences" },
  { type = "correction", title = "Corrections", count = "corrections" },
  { type = "failure", title = "Failures", count = "failures" },
  { type = "devops", title = "DevOps Rules", count = "devops" },
}
local GUIDE = "These are the user's own decisions, kept as notes. Where one bears on what you do, follow it and say so: (applied from memory: <rule>)."

local function line(record) return "- " .. string.gsub(record.text, "%s+", " ") end

function tool.execute(params, context)
  local project = shared.project(params, context)
  local sections, counts, total = {}, { total = 0 }, 0
  for _, kind in ipairs(KINDS) do
    local filter = shared.within({ kind = "fact", ["metadata.type"] = kind.type }, project)
    local records = context.memory.list({ filter = filter, order = "-timestamp", limit = MOST }).items
    counts[kind.count] = context.memory.count({ filter = filter })
    total = total + counts[kind.count]
    if #records > 0 then
      local lines = { "## " .. kind.title }
      for _, record in ipairs(records) do lines[#lines + 1] = line(record) end
      if counts[kind.count] > #records then lines[#lines + 1] = "(" .. counts[kind.count] - #records .. " older: search_memory)" end
      sections[#sections + 1] = table.concat(lines, "\n")
    end
  end
  counts.total = total
  local head = {}
  if total > 0 then head[#head + 1] = GUIDE end
  local checkpoint = project and shared.checkpoint(project, context)
  if checkpoint then
    head[#head + 1] = "A checkpoint of " .. time.iso(checkpoint.updated) .. " is kept for this project: load_checkpoint shows what remains to be done."
  end
  if total == 0 then head[#head + 1] = "No rules yet." end
  for _, section in ipairs(sections) do head[#head + 1] = section end
  return {
    rules = table.concat(head, "\n\n"),
    counts = counts,
    summary = total .. (total == 1 and " rule" or " rules") .. " loaded",
    projectId = project or json.null,
  }
end
