-- An export of a Notion workspace as "Markdown & CSV", unpacked. In ctx.toml:
--   [connectors.script.notion]
--   path = "registry:ctx/connectors/notion-export"
--   folder = "/home/ann/notion-export"   # by its full path
--   fs = ["/home/ann/notion-export"]     # which the script is allowed to read
-- Source: notion.com/help/export-your-content. A file is called "TITLE 32-HEX-DIGITS.md", the pages below it lie in a folder called likewise.
connector = { name = "notion-export", description = "An unpacked export of a Notion workspace" }

local ID = "%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x"

local function split(name)
  local title, id = name:match("^(.*)%s(" .. ID .. ")$")
  return title or name:gsub("_all$", ""), id
end

-- The page without its title, and the properties of a row of a database: the lines "Name: value" below the title.
local function page(text)
  local title, remainder = text:match("^\239?\187?\191?#%s+([^\n]*)\n(.*)$")
  if not title then return nil, text, {} end
  local properties, position = {}, 1
  local blank = remainder:match("^%s*\n()") or 1
  position = blank
  while true do
    local name, value, after = remainder:match("^([%w][^:\n]-):%s+([^\n]*)\n?()", position)
    if not name or #name > 60 then break end
    properties[name], position = value, after
  end
  -- A paragraph that happens to have a colon is none: properties end with an empty line.
  if position > blank and not remainder:match("^%s*\n", position) and position <= #remainder then return title, remainder, {} end
  return title, text:sub(#text - #remainder + 1), properties
end

-- Links to files of the export say the page's title.
local function mended(text)
  return (text:gsub("%[([^%]]*)%]%(([^)]*)%)", function(label, target)
    if target:match("^%a+:") or not target:match("%.md$") then return nil end
    return label
  end))
end

local function walk(folder, path, emit_file)
  for _, entry in ipairs(fs.list(folder .. path)) do
    if entry.dir then
      if path:len() < 1500 then walk(folder, path .. "/" .. entry.name, emit_file) end
    elseif entry.name:match("%.md$") or entry.name:match("%.csv$") then
      emit_file(path:sub(2) .. (path ~= "" and "/" or "") .. entry.name, entry)
    end
  end
end

function connector.scan(config)
  local folder = (config.folder or error("set folder in ctx.toml, and fs = [the same]", 0)):gsub("/+$", "")
  walk(folder, "", function(path, entry)
    local name, suffix = entry.name:match("^(.*)%.(%w+)$")
    local title, id = split(name)
    if suffix == "csv" and name:match("_all$") then return end -- the same database without its filters: its rows are pages too
    local ok, text = pcall(fs.read, entry.path)
    if not ok then return emit({ source_id = path }) end -- a line of the report
    local heading, properties
    if suffix == "md" then
      heading, text, properties = page(text)
      text = mended(text)
    end
    local trail = json.array({})
    for part in path:gmatch("([^/]+)/") do trail[#trail + 1] = (split(part)) end
    emit({
      source_id = path,
      title = heading or title,
      body = text:match("%S") and text or (heading or title),
      content_type = suffix == "md" and "text/markdown" or "text/csv",
      source_url = id and "https://www.notion.so/" .. id or nil,
      updated_at = entry.modified,
      metadata = { properties = json.object(properties or {}), within = trail },
    })
  end)
end
