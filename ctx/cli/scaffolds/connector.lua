-- {{title}}: a connector. `ctx connector test {{path}}` runs it;
-- name it in ctx.toml to index what it yields:
--   [connectors.script.{{name}}]
--   path = "{{path}}"
connector = {
  name = "{{name}}",
  description = "Say where the documents come from",
}

function connector.scan(config)
  local items = {}
  for number = 1, tonumber(config.count or 2) do
    items[#items + 1] = {
      source_id = "example-" .. number,
      title = "Example " .. number,
      body = "The text of example " .. number .. ".",
      source_url = "https://example.com/" .. number,
      updated_at = "2026-01-01T00:00:00Z",
      metadata = { number = number },
    }
  end
  return items
end
