-- Issues and merge requests of GitLab projects, with their notes. In ctx.toml:
--   [connectors.script.gitlab]
--   path = "registry:ctx/connectors/gitlab"
--   projects = ["acme/platform", 42]   # by path or number
--   token = "${GITLAB_TOKEN}"          # a token with read_api; public projects need none
--   url = "https://gitlab.com"         # your own server; its host in allow_hosts where it is private
--   kinds = ["issues"]                 # and "merge_requests"
--   notes = true                       # a request more for each that has some
--   full_every_hours = 24
--   max_wait = 120
-- Source: docs.gitlab.com/api/issues/, /api/merge_requests/, /api/notes/, /api/rest/#pagination, /administration/settings/user_and_ip_rate_limits/.
connector = { name = "gitlab", description = "Issues and merge requests of GitLab projects, with their notes" }

-- One answer. Waits where the server says how long, if that is no longer than `max_wait` seconds; else an error, and what is indexed stays.
local function request(url, headers, params, max_wait)
  for attempt = 1, 4 do
    local reply = http.get(url, { headers = headers, params = params, timeout = 30 })
    if reply.ok then return reply end
    local fields = reply.headers
    local wait = tonumber(fields["retry-after"] or "")
    if not wait and (fields["x-ratelimit-remaining"] or fields["ratelimit-remaining"]) == "0" then
      local reset = tonumber(fields["x-ratelimit-reset"] or fields["ratelimit-reset"] or "")
      wait = reset and math.max(0, reset - os.time()) + 1
    end
    local limited = reply.status == 429 or reply.status == 503 or (reply.status == 403 and wait)
    if not limited then
      local hint = ({ [401] = "the token is refused", [403] = "the token may not read this", [404] = "there is no such place, or the token may not see it" })[reply.status]
      error(url .. " answered " .. reply.status .. (hint and ": " .. hint or ""), 0)
    end
    if attempt == 4 or not wait or wait > max_wait then
      error(url .. " answered " .. reply.status .. ": its limit of requests is reached" .. (wait and ("; it is open again in " .. math.ceil(wait) .. " s") or "") .. ", max_wait is " .. max_wait .. " s", 0)
    end
    log.info("waiting " .. wait .. " s, as the server asks")
    sleep(wait)
  end
end

-- Since when to ask: nil for everything, the first time, every `full_every_hours`, and where nothing is indexed (any more). A scan since then
-- is partial: it deletes nothing; the next whole one finds what was deleted. An hour's overlap forgives clocks that differ.
local function begin(config, context)
  local now, kept = os.time(), context.store.get("scan")
  local full_every_s = tonumber(config.full_every_hours or 24) * 3600
  local whole = context.known == 0 or not kept or kept.settings ~= json.encode(config) or now - kept.whole >= full_every_s
  if not whole then emit({ partial = true }) end
  local scan = { whole = whole and now or kept.whole, at = now, settings = json.encode(config) }
  return not whole and os.date("!%Y-%m-%dT%H:%M:%SZ", kept.at - 3600) or nil, scan
end

local SIGNS = { issues = "#", merge_requests = "!" }

local function names(list)
  local listed = json.array({})
  for _, entry in ipairs(list or {}) do listed[#listed + 1] = type(entry) == "table" and entry.username or entry end
  return listed
end

function connector.scan(config, context)
  if type(config.projects) ~= "table" or #config.projects == 0 then error("set projects = [\"group/name\"] in ctx.toml", 0) end
  local api = (config.url or "https://gitlab.com"):gsub("/+$", "") .. "/api/v4"
  local headers = {}
  if config.token and config.token ~= "" then headers["PRIVATE-TOKEN"] = config.token end
  local max_wait = tonumber(config.max_wait or 120)
  local since, scan = begin(config, context)

  -- The entries of all pages: GitLab numbers them, and gives no number after the last one.
  local function pages(url, params)
    return coroutine.wrap(function()
      local page = "1"
      while page and page ~= "" do
        params.page, params.per_page = page, 100
        local reply = request(url, headers, params, max_wait)
        for _, entry in ipairs(reply.json) do coroutine.yield(entry) end
        page = reply.headers["x-next-page"]
      end
    end)
  end

  for _, project in ipairs(config.projects) do
    local base = api .. "/projects/" .. uri.encode(tostring(project))
    for _, kind in ipairs(config.kinds or { "issues" }) do
      if not SIGNS[kind] then error("kinds: '" .. tostring(kind) .. "' is neither issues nor merge_requests", 0) end
      for entry in pages(base .. "/" .. kind, { scope = "all", state = "all", order_by = "updated_at", sort = "asc", updated_after = since }) do
        local parts = { entry.description or "" }
        if config.notes ~= false and (entry.user_notes_count or 0) > 0 then
          for note in pages(base .. "/" .. kind .. "/" .. entry.iid .. "/notes", { sort = "asc", order_by = "created_at" }) do
            if not note.system then
              parts[#parts + 1] = "## " .. ((note.author or {}).name or "ghost") .. ", " .. note.created_at:sub(1, 10) .. "\n\n" .. (note.body or "")
            end
          end
        end
        local body = table.concat(parts, "\n\n")
        emit({
          source_id = project .. SIGNS[kind] .. entry.iid,
          title = entry.title,
          body = body:match("%S") and body or entry.title,
          content_type = "text/markdown",
          source_url = entry.web_url,
          author = (entry.author or {}).name,
          created_at = entry.created_at,
          updated_at = entry.updated_at,
          metadata = { project = tostring(project), number = entry.iid, kind = kind, state = entry.state, labels = names(entry.labels), assignees = names(entry.assignees), milestone = (entry.milestone or {}).title },
        })
      end
    end
  end
  context.store.set("scan", scan)
end
