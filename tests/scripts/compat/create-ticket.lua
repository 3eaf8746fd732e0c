-- In the manner of a ticket tool: reads related documents, posts JSON with basic auth, reports instead of raising.
tool = {
    name = "create_ticket",
    description = "Creates a ticket",
    parameters = {
        { name = "title", type = "string", required = true },
        { name = "description", type = "string", required = true },
        { name = "priority", type = "string", enum = { "Low", "Medium", "High" }, default = "Medium" },
        { name = "labels", type = "array" },
        { name = "enrich", type = "boolean", default = true },
    },
}

function tool.execute(params, context)
    local url, email, token = context.config.url, context.config.email, context.config.api_token
    local description = params.description
    if params.enrich then
        local hits = context.search(params.title, { mode = "hybrid", limit = 3 })
        for _, hit in ipairs(hits) do
            local doc = context.get(hit.id)
            description = description .. "\n- " .. (hit.title or "untitled") .. " (" .. #doc.body .. " characters, " .. #doc.chunks .. " chunks)"
        end
    end
    if not url or url == "" or not email or not token then
        return { success = false, error = "Missing config: url, email, and api_token are required", description_preview = description }
    end
    local response = http.post(url .. "/rest/api/3/issue", json.encode({
        fields = { summary = params.title, description = description, priority = { name = params.priority }, labels = params.labels },
    }), {
        headers = {
            ["Content-Type"] = "application/json",
            ["Authorization"] = "Basic " .. base64.encode(email .. ":" .. token),
            ["X-Signature"] = crypto.hmac_sha256(token, params.title),
        },
        timeout = 10,
    })
    if not response.ok then
        return { success = false, error = "HTTP " .. response.status, details = response.body }
    end
    local body = json.decode(response.body)
    log.info("created " .. body.key)
    return { success = true, ticket_key = body.key, url = url .. "/browse/" .. body.key, self = response.json.self }
end
