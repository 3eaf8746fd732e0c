-- An Obsidian vault: its notes with their tags, links and front matter. In ctx.toml:
--   [connectors.script.vault]
--   path = "registry:ctx/connectors/obsidian"
--   vault = "/home/ann/Notes"        # by its full path
--   fs = ["/home/ann/Notes"]         # which the script is allowed to read
--   name = "Notes"                   # as Obsidian calls it, for links that open a note (default: the folder's name)
--   exclude = ["templates"]          # folders to leave out, besides hidden ones
-- Source: obsidian.md/help: internal links, tags, properties, embeds, Obsidian URI.
connector = { name = "obsidian", description = "An Obsidian vault: notes with tags, links and front matter" }

local function trimmed(text) return (text:match("^%s*(.-)%s*$")) end

local function value_of(text)
  text = trimmed(text)
  local quoted = text:match('^"(.*)"$') or text:match("^'(.*)'$")
  return quoted or text
end

local function list_of(text)
  local listed = {}
  for part in text:gmatch("[^,]+") do
    if part:match("%S") then listed[#listed + 1] = value_of(part) end
  end
  return json.array(listed)
end

-- The properties of a note (the YAML that Obsidian writes: text, numbers, lists), and the text below them.
local function front_matter(text)
  local head, body = text:match("^\239?\187?\191?%-%-%-[ \t]*\r?\n(.-)\r?\n%-%-%-[ \t]*\r?\n?(.*)$")
  if not head then return {}, text end
  local properties, key = {}, nil
  for line in (head .. "\n"):gmatch("([^\n]*)\r?\n") do
    local item = line:match("^%s*%-%s+(.*)$")
    local name, value = line:match("^([%w_][^:]*):%s*(.*)$")
    if item and key then
      if type(properties[key]) ~= "table" then properties[key] = json.array({}) end
      table.insert(properties[key], value_of(item))
    elseif name then
      key = trimmed(name)
      local inner = trimmed(value):match("^%[(.*)%]$")
      if inner and not inner:match("^%[") then properties[key] = list_of(inner)
      elseif value:match("%S") then properties[key] = value_of(value) end
    end
  end
  return properties, body
end

-- The text without code, whose # and [[ are no tags and links.
local function prose(text)
  text = ("\n" .. text):gsub("\n```.-\n```", "\n"):gsub("\n~~~.-\n~~~", "\n")
  return (text:gsub("`[^`\n]*`", ""))
end

local function add(set, list, word)
  if word ~= "" and not set[word] then
    set[word] = true
    list[#list + 1] = word
  end
end

local function tags_of(properties, text)
  local set, list = {}, json.array({})
  for _, name in ipairs({ "tags", "tag" }) do
    local value = properties[name]
    for _, tag in ipairs(type(value) == "table" and value or value and list_of(value:gsub("%s+", ",")) or {}) do add(set, list, (tag:gsub("^#", ""))) end
  end
  -- A tag has letters, digits, _, - and / (and any other language's letters), and something that is no digit.
  for tag in (" " .. text):gmatch("[%s(]#([%w_/\128-\255-]+)") do
    if tag:match("[^%d]") then add(set, list, tag) end
  end
  return list
end

local function links_of(text)
  local set, list = {}, json.array({})
  for target in text:gmatch("%[%[([^%[%]\n]+)%]%]") do add(set, list, trimmed((target:match("^([^|#^]*)") or ""))) end
  for target in text:gmatch("%]%(([^()%s]+%.md)[^()]*%)") do
    if not target:match("^%a+:") then add(set, list, (uri.decode(target):gsub("%.md$", ""))) end
  end
  return list
end

-- Links as a reader sees them: their label, else the note's name with its heading.
local function readable(text)
  text = text:gsub("!?%[%[([^%[%]\n]+)%]%]", function(inner)
    local target, label = inner:match("^([^|]*)|(.*)$")
    if label and not label:match("^%d+x?%d*$") then return label end
    return ((target or inner):gsub("#%^?", " > "))
  end)
  return (text:gsub("%%%%.-%%%%", "")) -- comments, which Obsidian does not show
end

local function walk(vault, path, excluded, give)
  for _, entry in ipairs(fs.list(vault .. path)) do
    local inner = (path .. "/" .. entry.name):sub(2)
    if entry.dir then
      if entry.name:sub(1, 1) ~= "." and not excluded[inner] then walk(vault, path .. "/" .. entry.name, excluded, give) end
    elseif entry.name:match("%.md$") then
      give(inner, entry)
    end
  end
end

function connector.scan(config)
  local vault = (config.vault or error("set vault in ctx.toml, and fs = [the same]", 0)):gsub("/+$", "")
  local name = config.name or vault:match("([^/]+)$")
  local excluded = {}
  for _, folder in ipairs(config.exclude or {}) do excluded[(folder:gsub("/+$", ""))] = true end
  walk(vault, "", excluded, function(path, entry)
    local ok, text = pcall(fs.read, entry.path)
    if not ok then return emit({ source_id = path }) end -- a line of the report
    local properties, body = front_matter(text)
    local words = prose(body)
    local tags, links = tags_of(properties, words), links_of(words)
    local title = type(properties.title) == "string" and properties.title or entry.name:gsub("%.md$", "")
    local aliases = type(properties.aliases) == "table" and properties.aliases or properties.aliases and list_of(properties.aliases) or json.array({})
    local shown = readable(body)
    -- Tags and other names of a note are what people search by; in the properties they would not be found.
    if #tags > 0 then shown = shown .. "\n\nTags: " .. table.concat(tags, ", ") end
    if #aliases > 0 then shown = shown .. "\n\nAlso called: " .. table.concat(aliases, ", ") end
    properties.tags, properties.tag, properties.aliases = nil, nil, nil
    emit({
      source_id = path,
      title = title,
      body = shown:match("%S") and shown or title,
      content_type = "text/markdown",
      source_url = "obsidian://open?vault=" .. uri.encode(name) .. "&file=" .. uri.encode((path:gsub("%.md$", ""))),
      created_at = type(properties.created) == "string" and properties.created or nil,
      updated_at = entry.modified,
      metadata = { tags = tags, links = links, aliases = aliases, properties = json.object(properties) },
    })
  end)
end
