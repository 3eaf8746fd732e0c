-- A connector for JSON feeds (https://jsonfeed.org): blogs, release notes, status pages. Name it in ctx.toml to index one:
--   [connectors.script.blog]
--   path = "./connectors/feed.lua"
--   url = "https://example.com/feed.json"
--   max_items = 500
connector = {
  name = "feed",
  description = "Indexes the items of a JSON feed, page by page",
}

local function names_of(authors)
  local names = {}
  for _, author in ipairs(authors or {}) do names[#names + 1] = author.name end
  return #names > 0 and table.concat(names, ", ") or nil
end

local function page(url, config)
  local headers = { Accept = "application/feed+json, application/json" }
  if config.token then headers.Authorization = "Bearer " .. config.token end
  local answer = http.get(url, { headers = headers, timeout = 20 })
  -- An error here makes the scan incomplete: what is indexed already stays.
  if not answer.ok then error(url .. " answered " .. answer.status) end
  if not answer.json or not answer.json.items then error(url .. " is not a JSON feed") end
  return answer.json
end

function connector.scan(config)
  local url = config.url or error("set url in ctx.toml")
  local most, count = tonumber(config.max_items or 1000), 0
  while url and count < most do
    local feed = page(url, config)
    for _, item in ipairs(feed.items) do
      if count >= most then break end
      count = count + 1
      emit({
        source_id = item.id or item.url,
        title = item.title or (item.content_text or item.summary or item.url or ""):sub(1, 80),
        body = item.content_text or item.content_html or item.summary,
        content_type = not item.content_text and item.content_html and "text/html" or "text/plain",
        source_url = item.url or item.external_url,
        author = names_of(item.authors) or names_of(feed.authors),
        created_at = item.date_published,
        updated_at = item.date_modified or item.date_published,
        metadata = { feed = feed.title, tags = item.tags },
      })
    end
    url = feed.next_url
  end
  log.info(count .. " items")
end
