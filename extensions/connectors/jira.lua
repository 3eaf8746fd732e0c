-- Issues of Jira, with their comments. In ctx.toml:
--   [connectors.script.jira]
--   path = "registry:ctx/connectors/jira"
--   url = "https://acme.atlassian.net"
--   jql = "project = PLAT"         # which issues; without ORDER BY
--   email = "ann@acme.example"     # cloud: the account whose token it is
--   token = "${JIRA_TOKEN}"        # cloud: an API token; data center: a personal access token, without email
--   api = 3                        # 2 for Jira Data Center, whose host is named in allow_hosts where it is private
--   full_every_hours = 24
--   max_wait = 120
-- Source: developer.atlassian.com/cloud/jira/platform/rest/v3/api-group-issue-search/ (search/jql), .../apis/document/structure/,
-- .../rate-limiting/; developer.atlassian.com/server/jira/platform/rest/ (api/2/search).
connector = { name = "jira", description = "Issues of Jira (cloud or data center), with their comments" }

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

-- Atlassian's document format as Markdown: blocks apart, lists and code as such. Jira 2 gives text, which stays.
local BLOCKS = { paragraph = true, heading = true, blockquote = true, panel = true, codeBlock = true, rule = true, mediaSingle = true }

local function text_of(node, depth)
  if type(node) == "string" then return node end
  if type(node) ~= "table" or (depth or 0) > 60 then return "" end
  local kind, attrs, parts = node.type, node.attrs or {}, {}
  if kind == "text" then
    for _, mark in ipairs(node.marks or {}) do
      if mark.type == "link" and (mark.attrs or {}).href then return "[" .. (node.text or "") .. "](" .. mark.attrs.href .. ")" end
      if mark.type == "code" then return "`" .. (node.text or "") .. "`" end
    end
    return node.text or ""
  end
  if kind == "hardBreak" then return "\n" end
  if kind == "mention" or kind == "emoji" or kind == "status" then return attrs.text or attrs.shortName or "" end
  if kind == "inlineCard" or kind == "blockCard" then return attrs.url or "" end
  for number, child in ipairs(node.content or {}) do
    local text = text_of(child, (depth or 0) + 1)
    if kind == "bulletList" then text = "- " .. text:gsub("%s+$", ""):gsub("\n", "\n  ") .. "\n" end
    if kind == "orderedList" then text = number .. ". " .. text:gsub("%s+$", ""):gsub("\n", "\n   ") .. "\n" end
    if kind == "tableRow" then text = text:gsub("%s+", " "):gsub(" $", "") .. " | " end
    parts[#parts + 1] = text
  end
  local text = table.concat(parts)
  if kind == "heading" then text = ("#"):rep(math.min(6, tonumber(attrs.level) or 2)) .. " " .. text end
  if kind == "codeBlock" then text = "```" .. (attrs.language or "") .. "\n" .. text .. "\n```" end
  if kind == "blockquote" then text = "> " .. text:gsub("%s+$", ""):gsub("\n", "\n> ") end
  if kind == "tableRow" then return "| " .. text:gsub(" $", "") .. "\n" end
  if kind == "bulletList" or kind == "orderedList" or kind == "table" then return text .. "\n" end
  return BLOCKS[kind] and text .. "\n\n" or text
end

local FIELDS = { "summary", "description", "comment", "status", "issuetype", "priority", "labels", "assignee", "reporter", "created", "updated", "project" }

function connector.scan(config, context)
  local site = (config.url or error("set url in ctx.toml", 0)):gsub("/+$", "")
  local jql = config.jql or error("set jql in ctx.toml, such as \"project = PLAT\"", 0)
  if jql:upper():match("%sORDER%s+BY%s") then error("jql: leave ORDER BY out; the order is by date", 0) end
  local headers = { Accept = "application/json" }
  if config.token and config.token ~= "" then
    headers.Authorization = config.email and "Basic " .. base64.encode(config.email .. ":" .. config.token) or "Bearer " .. config.token
  end
  local cloud = tonumber(config.api or 3) == 3
  local max_wait = tonumber(config.max_wait or 120)
  local since, scan = begin(config, context)
  -- A span of minutes, since a moment in JQL is of the account's own time zone.
  if since then jql = "(" .. jql .. ") AND updated >= -" .. math.ceil((scan.at - context.store.get("scan").at + 3600) / 60) .. "m" end

  local params = { jql = jql .. " ORDER BY updated ASC", fields = table.concat(FIELDS, ","), maxResults = 100 }
  local count = 0
  repeat
    local page = request(site .. (cloud and "/rest/api/3/search/jql" or "/rest/api/2/search"), headers, params, max_wait).json
    for _, issue in ipairs(page.issues or {}) do
      local fields = issue.fields or {}
      local parts = { text_of(fields.description) }
      local comments = (fields.comment or {}).comments or {}
      for _, comment in ipairs(comments) do
        parts[#parts + 1] = "## " .. ((comment.author or {}).displayName or "somebody") .. ", " .. (comment.created or ""):sub(1, 10) .. "\n\n" .. text_of(comment.body)
      end
      local body = table.concat(parts, "\n\n")
      local labels = json.array({})
      for _, label in ipairs(fields.labels or {}) do labels[#labels + 1] = label end
      emit({
        source_id = issue.key,
        title = issue.key .. " " .. (fields.summary or ""),
        body = body:match("%S") and body or (fields.summary or issue.key),
        content_type = "text/markdown",
        source_url = site .. "/browse/" .. issue.key,
        author = (fields.reporter or {}).displayName,
        created_at = fields.created,
        updated_at = fields.updated,
        metadata = {
          project = (fields.project or {}).key, status = (fields.status or {}).name, kind = (fields.issuetype or {}).name,
          priority = (fields.priority or {}).name, assignee = (fields.assignee or {}).displayName, labels = labels,
        },
      })
    end
    count = count + #(page.issues or {})
    local more
    if cloud then
      params.nextPageToken, more = page.nextPageToken, page.nextPageToken ~= nil and not page.isLast
    else
      params.startAt, more = count, #(page.issues or {}) > 0 and count < (page.total or 0)
    end
  until not more
  context.store.set("scan", scan)
end
