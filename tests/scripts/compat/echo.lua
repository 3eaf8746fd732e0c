-- As the first tool of a tutorial would be: config, log, table-form search, os.date, and an empty list.
tool = {
    name = "echo",
    description = "Echoes a message",
    parameters = {
        { name = "message", type = "string", required = true, description = "What to echo" },
        { name = "search", type = "boolean", required = false, default = false, description = "Search for it too" },
        { name = "limit", type = "integer", required = false, default = 3 },
    },
}

log.info("loaded at top level, with json too: " .. json.encode({ ok = true }))

function tool.execute(params, context)
    local greeting = (context.config and context.config.greeting) or "Echo"
    local sources = context.sources()
    local result = {
        echo = greeting .. ": " .. params.message,
        params = params,
        source_count = #sources,
        today = os.date("%Y-%m-%d"),
        year = tonumber(os.date("!*t").year),
        stamp = os.time(),
    }
    if params.search then
        local hits = context.search({ query = params.message, mode = "hybrid", limit = params.limit, filters = { source = "filesystem" } })
        result.result_count = #hits
        result.search_results = {}
        for i, hit in ipairs(hits) do
            table.insert(result.search_results, { rank = i, title = hit.title, score = string.format("%.2f", hit.score), id = hit.id })
        end
    end
    return result
end
