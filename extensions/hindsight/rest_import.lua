-- POST .../memories/import: takes in lines of an export.
tool = {
  name = "rest_import",
  description = "Take in lines of an export",
  parameters = {
    type = "object",
    properties = { content = { type = "string", description = "Lines that `ctx memory export` or .../memories/export wrote" } },
    required = { "content" },
  },
}

function tool.execute(params, context) return context.memory.import({ content = params.content }) end
