-- RSS and Atom feeds. In ctx.toml:
--   [connectors.script.news]
--   path = "registry:ctx/connectors/rss"
--   urls = ["https://example.org/feed.xml"]
--   max_pages = 10                   # of a feed that has more than one page (RFC 5005)
--   max_wait = 120
-- Entries that a feed no longer has stay indexed. A feed that has not changed is not sent again (ETag, Last-Modified).
-- Source: rssboard.org/rss-specification, RFC 4287 (Atom), RFC 5005 (paging), RFC 9110 (conditional requests).
connector = { name = "rss", description = "RSS and Atom feeds" }

local ENTITIES = { lt = "<", gt = ">", amp = "&", quot = '"', apos = "'", nbsp = " " }

local function unescape(text)
  return (text:gsub("&(#?)([xX]?)(%w+);", function(number, hex, name)
    if number == "" then return ENTITIES[hex .. name] end
    local code = tonumber(name, hex ~= "" and 16 or 10)
    if code and code < 0x110000 and not (code >= 0xD800 and code < 0xE000) then return utf8.char(code) end
  end))
end

-- A feed as a tree of { name, attrs, text, inner, [child...] }: names without their prefix but for `content:encoded`; no document type is read.
local function parse(xml)
  local root = { name = "", attrs = {} }
  local stack, position = { root }, 1
  local function add(text)
    local top = stack[#stack]
    top.text = (top.text or "") .. text
  end
  while true do
    local start = xml:find("<", position, true)
    if not start then break end
    if start > position then add(unescape(xml:sub(position, start - 1))) end
    if xml:sub(start, start + 8) == "<![CDATA[" then
      local finish = xml:find("]]>", start + 9, true) or #xml
      add(xml:sub(start + 9, finish - 1))
      position = finish + 3
    elseif xml:sub(start, start + 3) == "<!--" then
      position = (xml:find("-->", start + 4, true) or #xml) + 3
    else
      local finish = xml:find(">", start, true)
      if not finish then break end
      local tag = xml:sub(start + 1, finish - 1)
      position = finish + 1
      if tag:sub(1, 1) == "/" then
        if #stack > 1 then
          local closed = table.remove(stack)
          closed.inner = xml:sub(closed.from, start - 1)
        end
      elseif tag:sub(1, 1) ~= "?" and tag:sub(1, 1) ~= "!" then
        local name = tag:match("^[^%s/]+") or ""
        local node = { name = name == "content:encoded" and name or (name:match(":(.*)") or name), attrs = {}, from = position }
        for key, _, value in tag:gmatch("([%w:_-]+)%s*=%s*([\"'])(.-)%2") do node.attrs[key] = unescape(value) end
        local top = stack[#stack]
        top[#top + 1] = node
        if tag:sub(-1) ~= "/" and #stack < 100 then stack[#stack + 1] = node end
      end
    end
  end
  return root
end

local function child(node, name)
  for _, entry in ipairs(node) do if entry.name == name then return entry end end
end

local function text(node, ...)
  for _, name in ipairs({ ... }) do
    local entry = child(node, name)
    local value = entry and (entry.text or ""):match("^%s*(.-)%s*$")
    if value and value ~= "" then return value, entry end
  end
end

-- The address of a link: Atom's is in an attribute, RSS's between the tags.
local function link(node, relation)
  for _, entry in ipairs(node) do
    if entry.name == "link" then
      local rel = entry.attrs.rel or "alternate"
      if entry.attrs.href and rel == relation then return entry.attrs.href end
      if relation == "alternate" and not entry.attrs.href and entry.text then return entry.text:match("^%s*(.-)%s*$") end
    end
  end
end

local MONTHS = { Jan = 1, Feb = 2, Mar = 3, Apr = 4, May = 5, Jun = 6, Jul = 7, Aug = 8, Sep = 9, Oct = 10, Nov = 11, Dec = 12 }
local ZONES = { EST = -5, EDT = -4, CST = -6, CDT = -5, MST = -7, MDT = -6, PST = -8, PDT = -7 }

-- ISO 8601 of RSS's dates (RFC 822); Atom's are that already.
local function moment(value)
  if not value then return nil end
  local day, month, year, hour, minute, second, zone = value:match("(%d+) (%a%a%a)%a* (%d+) (%d+):(%d+):?(%d*)%s*(%S*)")
  if not day or not MONTHS[month] then return value end
  year = tonumber(year)
  if year < 100 then year = year + (year < 70 and 2000 or 1900) end
  local sign, hours, minutes = zone:match("([+-])(%d%d):?(%d%d)")
  local offset = sign and (tonumber(hours) * 60 + tonumber(minutes)) * (sign == "-" and -1 or 1) or (ZONES[zone] or 0) * 60
  local seconds = os.time({ year = year, month = MONTHS[month], day = tonumber(day), hour = tonumber(hour), min = tonumber(minute), sec = tonumber(second) or 0 })
  return os.date("!%Y-%m-%dT%H:%M:%SZ", seconds - offset * 60)
end

local function body_of(entry)
  local content = child(entry, "content")
  if content and content.attrs.type == "xhtml" then return content.inner, "text/html" end
  local value, node = text(entry, "content:encoded", "content", "description", "summary")
  if not value then return nil end
  if node.attrs.type == "text" then return value, "text/plain" end
  return value, (node.attrs.type == "html" or value:find("<%a")) and "text/html" or "text/plain"
end

local function authors(entry)
  local author = child(entry, "author")
  return author and (text(author, "name") or text(entry, "author")) or text(entry, "creator")
end

-- An address as it may be seen: without what follows `?`, in which a key often stands.
local function shown(address) return (address:gsub("[?#].*$", "")) end

local function emit_entries(feed, address)
  local title = text(feed, "title")
  local count = 0
  for _, entry in ipairs(feed) do
    if entry.name == "item" or entry.name == "entry" then
      local url = link(entry, "alternate")
      local id = text(entry, "guid", "id") or url or text(entry, "title")
      local body, content_type = body_of(entry)
      local heading = text(entry, "title")
      local tags = json.array({})
      for _, node in ipairs(entry) do
        if node.name == "category" then tags[#tags + 1] = node.attrs.term or (node.text or ""):match("^%s*(.-)%s*$") end
      end
      if id and (body or heading) then
        count = count + 1
        emit({
          source_id = id, title = heading, body = body or heading, content_type = content_type or "text/plain",
          source_url = url or (id:match("^https?://") and id) or nil, author = authors(entry),
          created_at = moment(text(entry, "pubDate", "published", "date")),
          updated_at = moment(text(entry, "updated", "pubDate", "published", "date")),
          metadata = { feed = title, feed_url = shown(address), tags = tags },
        })
      end
    end
  end
  return count
end

local function fetch(url, headers, max_wait)
  for attempt = 1, 3 do
    local reply = http.get(url, { headers = headers, timeout = 30 })
    if reply.ok or reply.status == 304 then return reply end
    local wait = tonumber(reply.headers["retry-after"] or "")
    if (reply.status ~= 429 and reply.status ~= 503) or not wait or wait > max_wait or attempt == 3 then
      error(shown(url) .. " answered " .. reply.status .. (wait and ("; it asks to wait " .. wait .. " s, max_wait is " .. max_wait .. " s") or ""), 0)
    end
    sleep(wait)
  end
end

-- A feed with its further pages, each a conditional request; what it answers with is kept once the entries are given.
local function read(address, config, context)
  local url, pages, seen = address, 0, {}
  while url and not seen[url] and pages < tonumber(config.max_pages or 10) do
    seen[url], pages = true, pages + 1
    local key = "feed " .. crypto.sha256(url):sub(1, 32)
    local kept = context.known > 0 and context.store.get(key) or {}
    local headers = { Accept = "application/atom+xml, application/rss+xml, application/xml;q=0.9, text/xml;q=0.8" }
    headers["If-None-Match"], headers["If-Modified-Since"] = kept.etag, kept.modified
    local reply = fetch(url, headers, tonumber(config.max_wait or 120))
    if reply.status == 304 then return end
    local root = parse(reply.body)
    local feed = child(root, "feed") or child(root, "rss") or child(root, "RDF")
    if not feed then error(shown(url) .. " is no RSS or Atom feed", 0) end
    local channel = child(feed, "channel") or feed
    emit_entries(channel, address)
    if channel ~= feed then emit_entries(feed, address) end -- RSS 1.0 has its items beside the channel
    if pages == 1 then context.store.set(key, { etag = reply.headers.etag, modified = reply.headers["last-modified"] }) end
    url = link(channel, "next")
  end
end

function connector.scan(config, context)
  local urls = config.urls or (config.url and { config.url })
  if type(urls) ~= "table" or #urls == 0 then error("set urls = [\"https://...\"] in ctx.toml", 0) end
  emit({ partial = true }) -- a feed has its newest entries only: what it no longer has stays
  local faults = {}
  for _, url in ipairs(urls) do
    local ok, fault = pcall(read, url, config, context)
    if not ok then faults[#faults + 1] = tostring(fault) end
  end
  if #faults > 0 then error(table.concat(faults, "; "), 0) end -- the other feeds' entries are kept
end
