-- An export of a Slack workspace, unpacked: a document a channel (or group of direct messages) and day, replies below what they answer. In ctx.toml:
--   [connectors.script.slack]
--   path = "registry:ctx/connectors/slack-export"
--   folder = "/home/ann/slack-export"   # with channels.json and users.json in it, by its full path
--   fs = ["/home/ann/slack-export"]     # which the script is allowed to read
--   channels = []                       # only these (of direct messages their ids); all where absent
--   workspace = "acme"                  # for links to ACME.slack.com
-- Source: slack.com/help/articles/220556107 (how to read Slack data exports), api.slack.com/reference/surfaces/formatting.
connector = { name = "slack-export", description = "An unpacked export of a Slack workspace" }

local function read(path)
  local ok, value = pcall(function() return json.parse(fs.read(path)) end)
  return ok and value or nil
end

local CONVERSATIONS = { "channels", "groups", "mpims", "dms" }

-- The lists of an export by name, those that are there. One that is there and cannot be read ends the scan: what it lists would be taken for gone.
local function lists_of(folder)
  local lists, present = {}, {}
  local ok, entries = pcall(fs.list, folder, "*.json")
  for _, entry in ipairs(ok and entries or {}) do present[entry.name] = entry.path end
  for _, name in ipairs({ "users", table.unpack(CONVERSATIONS) }) do
    local path = present[name .. ".json"]
    lists[name] = path and (read(path) or error(path .. " cannot be read: unpack the export once more", 0))
  end
  return lists
end

-- What Slack writes between < and > as a reader sees it; then the three characters that it escapes.
local function plain(text, users)
  text = text:gsub("<([^<>]+)>", function(inner)
    local target, label = inner:match("^([^|]*)|?(.*)$")
    local sign = target:sub(1, 1)
    if sign == "@" then return "@" .. (users[target:sub(2)] or (label ~= "" and label or target:sub(2))) end
    if sign == "#" then return "#" .. (label ~= "" and label or target:sub(2)) end
    if sign == "!" then return "@" .. (label ~= "" and label or target:sub(2)) end
    return label ~= "" and label ~= target and "[" .. label .. "](" .. target .. ")" or target
  end)
  return (text:gsub("&lt;", "<"):gsub("&gt;", ">"):gsub("&amp;", "&"))
end

-- The words of blocks, which apps write instead of a text: every "text" in them, a line each block.
local function words_of(value, words)
  if type(value) == "string" then words[#words + 1] = value end
  if type(value) ~= "table" then return words end
  words_of(value.text, words)
  for _, part in ipairs(value.elements or value.fields or value) do words_of(part, words) end
  return words
end

local function text_of(message)
  if (message.text or "") ~= "" then return message.text end
  local lines = {}
  for _, block in ipairs(message.blocks or {}) do lines[#lines + 1] = table.concat(words_of(block, {}), " ") end
  return table.concat(lines, "\n")
end

local QUIET = { channel_join = true, channel_leave = true, channel_topic = true, channel_purpose = true, channel_name = true, bot_add = true }

local function line_of(message, users)
  local name = users[message.user or ""] or (message.user_profile or {}).real_name or message.username or message.user or "somebody"
  local text = plain(text_of(message), users)
  for _, file in ipairs(message.files or {}) do text = text .. (text ~= "" and "\n" or "") .. "[file: " .. (file.title or file.name or "?") .. "]" end
  for _, attachment in ipairs(message.attachments or {}) do
    local words = attachment.text or attachment.fallback
    if words and words ~= "" then text = text .. (text ~= "" and "\n" or "") .. plain(words, users) end
  end
  if not text:match("%S") then return nil end
  return "**" .. name .. "** " .. os.date("!%H:%M", math.floor(tonumber(message.ts) or 0)) .. "\n" .. text
end

local function day_document(channel, day, messages, users, config)
  local threads, order = {}, {}
  for _, message in ipairs(messages) do
    local line = not QUIET[message.subtype or ""] and line_of(message, users)
    if line then
      local root = message.thread_ts or message.ts
      if not threads[root] then threads[root], order[#order + 1] = {}, root end
      local lines = threads[root]
      lines[#lines + 1] = (root ~= message.ts) and "> " .. line:gsub("\n", "\n> ") or line
    end
  end
  if #order == 0 then return end
  local parts = {}
  for _, root in ipairs(order) do parts[#parts + 1] = table.concat(threads[root], "\n\n") end
  local last = messages[#messages].ts
  emit({
    source_id = channel.name .. "/" .. day,
    title = channel.title .. ", " .. day,
    body = table.concat(parts, "\n\n"),
    content_type = "text/markdown",
    source_url = config.workspace and channel.id and ("https://" .. config.workspace .. ".slack.com/archives/" .. channel.id .. "/p" .. messages[1].ts:gsub("%.", "")) or nil,
    updated_at = last,
    metadata = { channel = channel.name, members = channel.people, day = day, messages = #messages },
  })
end

-- All that the export lists: channels, private ones, and direct messages of two or more, which are called by who writes in them.
-- The folder of two is called by their channel's id, all others by the name.
local function channels_of(lists, users)
  local channels = {}
  for _, kind in ipairs(CONVERSATIONS) do
    for _, channel in ipairs(lists[kind] or {}) do
      channel.name = channel.name or channel.id
      channel.title = "#" .. channel.name
      if kind == "mpims" or kind == "dms" then
        channel.people = {}
        for _, member in ipairs(channel.members or {}) do channel.people[#channel.people + 1] = users[member] or member end
        if #channel.people > 0 then channel.title = table.concat(channel.people, ", ") end
      end
      channels[#channels + 1] = channel
    end
  end
  return channels
end

function connector.scan(config)
  local folder = (config.folder or error("set folder in ctx.toml, and fs = [the same]", 0)):gsub("/+$", "")
  local lists = lists_of(folder)
  if not (lists.channels or lists.groups or lists.mpims or lists.dms) then
    error(folder .. " has no channels.json: unpack the export there, and name the folder in fs", 0)
  end
  local users = {}
  for _, user in ipairs(lists.users or {}) do
    local profile = user.profile or {}
    users[user.id] = profile.display_name ~= "" and profile.display_name or profile.real_name or user.name
  end
  local only
  for _, name in ipairs(config.channels or {}) do
    only = only or {}
    only[name] = true
  end
  for _, channel in ipairs(channels_of(lists, users)) do
    if not only or only[channel.name] then
      local ok, entries = pcall(fs.list, folder .. "/" .. channel.name, "*.json")
      for _, entry in ipairs(ok and entries or {}) do
        local messages = read(entry.path)
        if messages then
          day_document(channel, entry.name:sub(1, -6), messages, users, config)
        else
          emit({ source_id = channel.name .. "/" .. entry.name:sub(1, -6) }) -- a line of the report; what is indexed of it stays
        end
      end
    end
  end
end
