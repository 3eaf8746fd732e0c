-- In the manner of an issue connector: pages by a query parameter, skips what is no issue, stops at the rate limit; metadata both ways.
connector = { name = "issues", description = "Issues of a repository" }

local function labels_of(issue)
    local names = {}
    for _, label in ipairs(issue.labels or {}) do names[#names + 1] = label.name end
    return table.concat(names, ", ")
end

function connector.scan(config)
    local items = {}
    local page = 1
    while true do
        local response = http.get(config.api .. "/repos/" .. config.owner .. "/" .. config.repo .. "/issues", {
            headers = { ["Authorization"] = "Bearer " .. config.token, ["Accept"] = "application/vnd.github+json" },
            params = { state = "all", per_page = "2", page = tostring(page) },
        })
        if not response.ok then
            log.error("API error: " .. response.status)
            break
        end
        local issues = response.json
        if not issues or #issues == 0 then break end
        for _, issue in ipairs(issues) do
            if not issue.pull_request then
                local item = {
                    source = "github",
                    source_id = tostring(issue.number),
                    title = string.format("#%d %s", issue.number, issue.title),
                    body = (issue.body or "") .. "\n\nLabels: " .. labels_of(issue),
                    source_url = issue.html_url,
                    author = issue.user and issue.user.login,
                    content_type = "text/markdown",
                    created_at = issue.created_at,
                    updated_at = issue.updated_at,
                }
                if config.table_form then
                    item.metadata = { state = issue.state, labels = labels_of(issue) }
                else
                    item.metadata_json = json.encode({ state = issue.state, labels = labels_of(issue) })
                end
                items[#items + 1] = item
            end
        end
        local remaining = tonumber(response.headers["x-ratelimit-remaining"])
        if remaining and remaining < 5 then break end
        page = page + 1
        sleep(0.01)
    end
    return items
end
