-- GET .../stats: how much a bank holds. Nothing is worked on behind: what is stored is done.
tool = {
  name = "rest_stats",
  description = "Hindsight's statistics of a bank over REST",
  parameters = { type = "object", properties = { refresh = { type = "boolean", description = "It is always counted anew" } } },
}

function tool.execute(_, context)
  local facts = context.memory.stats({ filter = { kind = "fact" }, group_by = "type" })
  local documents = context.memory.stats({ filter = { kind = "fact", document_id = { exists = true } }, group_by = "document_id" })
  local by_type = shared.by_type(facts.groups)
  local none = json.object({})
  return {
    bank_id = context.bank.id,
    total_nodes = facts.count,
    total_links = 0,
    total_documents = #documents.groups,
    nodes_by_fact_type = by_type,
    links_by_link_type = none,
    links_by_fact_type = none,
    links_breakdown = none,
    pending_operations = 0,
    failed_operations = 0,
    operations_by_status = none,
    last_memory_write_at = facts.last_created and time.iso(facts.last_created) or json.null,
    total_observations = by_type.observation or 0,
  }
end
