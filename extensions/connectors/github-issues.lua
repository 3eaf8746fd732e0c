-- Issues of GitHub repositories, with their comments. In ctx.toml:
--   [connectors.script.issues]
--   path = "registry:ctx/connectors/github-issues"
--   repos = ["acme/platform", "acme/docs"]
--   token = "${GITHUB_TOKEN}"        # a fine-grained token that reads issues; without one, 60 requests an hour
--   state = "all"                    # open, closed
--   comments = true                  # a request more for each issue that has some
--   pull_requests = false
--   labels = []                      # only issues with all of these
--   url = "https://api.github.com"   # of an enterprise server: https://HOST/api/v3, and its host in allow_hosts where it is private
--   full_every_hours = 24            # in between only what was updated is asked for
--   max_wait = 120                   # seconds to wait where the limit of requests is reached
-- Source: docs.github.com/en/rest/issues/issues#list-repository-issues, .../rest/issues/comments, .../rest/using-the-rest-api/rate-limits-for-the-rest-api.
connector = { name = "github-issues", description = "Issues of GitHub repositories, with their comments" }

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

-- The address of the next page, of a Link header.
local function next_page(reply)
  for address, relation in (reply.headers.link or ""):gmatch('<([^>]*)>;%s*rel="([^"]*)"') do
    if relation == "next" then return address end
  end
end

local function names(list, field)
  local listed = json.array({})
  for _, entry in ipairs(list or {}) do listed[#listed + 1] = type(entry) == "table" and entry[field] or entry end
  return listed
end

function connector.scan(config, context)
  if type(config.repos) ~= "table" or #config.repos == 0 then error("set repos = [\"owner/name\"] in ctx.toml", 0) end
  local api = (config.url or "https://api.github.com"):gsub("/+$", "")
  local headers = { Accept = "application/vnd.github+json", ["X-GitHub-Api-Version"] = "2022-11-28" }
  if config.token and config.token ~= "" then headers.Authorization = "Bearer " .. config.token end
  local max_wait = tonumber(config.max_wait or 120)
  local since, scan = begin(config, context)

  local function comments_of(issue)
    local parts, url, params = {}, issue.comments_url, { per_page = 100 }
    while url do
      local reply = request(url, headers, params, max_wait)
      for _, comment in ipairs(reply.json) do
        parts[#parts + 1] = "## " .. ((comment.user or {}).login or "ghost") .. ", " .. comment.created_at:sub(1, 10) .. "\n\n" .. (comment.body or "")
      end
      url, params = next_page(reply), nil
    end
    return parts
  end

  for _, repo in ipairs(config.repos) do
    if not repo:match("^[%w._-]+/[%w._-]+$") then error("repos: '" .. repo .. "' is not owner/name", 0) end
    local url = api .. "/repos/" .. repo .. "/issues"
    local params = { state = config.state or "all", per_page = 100, sort = "updated", direction = "asc", since = since }
    if config.labels and #config.labels > 0 then params.labels = table.concat(config.labels, ",") end
    while url do
      local reply = request(url, headers, params, max_wait)
      for _, issue in ipairs(reply.json) do
        if not issue.pull_request or config.pull_requests then
          local parts = { issue.body or "" }
          if config.comments ~= false and (issue.comments or 0) > 0 then
            for _, part in ipairs(comments_of(issue)) do parts[#parts + 1] = part end
          end
          local body = table.concat(parts, "\n\n")
          emit({
            source_id = repo .. "#" .. issue.number,
            title = issue.title,
            body = body:match("%S") and body or issue.title,
            content_type = "text/markdown",
            source_url = issue.html_url,
            author = (issue.user or {}).login,
            created_at = issue.created_at,
            updated_at = issue.updated_at,
            metadata = {
              repository = repo, number = issue.number, state = issue.state, labels = names(issue.labels, "name"),
              assignees = names(issue.assignees, "login"), milestone = (issue.milestone or {}).title, pull_request = issue.pull_request ~= nil,
            },
          })
        end
      end
      url, params = next_page(reply), nil
    end
  end
  context.store.set("scan", scan)
end
