-- GET .../memories/export: the bank as `ctx memory export` writes it, a line of JSON a memory.
tool = { name = "rest_export", description = "Export a bank's memories", parameters = { type = "object", properties = {} } }

function tool.execute(_, context) return context.memory.export({}) end
