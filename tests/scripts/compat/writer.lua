-- In the manner of a document-writing agent: hybrid search, formatted scores, cut snippets, an example from a file beside it.
agent = {
    name = "writer",
    description = "Writes a design record",
    tools = { "search", "get", "create_record" },
    arguments = {
        { name = "decision", description = "What was decided", required = true },
    },
}

function agent.resolve(args, config, context)
    local results = context.search(args.decision, { mode = "hybrid", limit = 5 })
    local text = ""
    for i, r in ipairs(results) do
        text = text .. string.format("%d. [%.2f] %s (%s)\n   %s\n", i, r.score, r.title or "Untitled", r.source, r.snippet:sub(1, 40))
    end
    local files = fs.list(".", "*.md")
    local template = fs.read(files[1].path)
    return {
        system = "You write records for " .. (config.team or "the team") .. ".\n" .. template,
        tools = { "search", "get" },
        messages = { { role = "assistant", content = text ~= "" and text or "Nothing related was found." } },
    }
end
