-- What Hindsight's scripts share: how a memory is shown, and which memories the tags of a request admit.
local shared = {}

-- A memory's name, as recall gives it.
function shared.fact(id) return "fact_" .. string.sub(string.gsub(id, "-", ""), 1, 12) end

-- One result of recall: what the seed shows, `said` and `score`, then what there is besides: additional keys are left out when
-- they are empty.
function shared.result(hit, id)
  local record = hit.record
  local replaced, newer = json.array({}), json.array({})
  for _, older in ipairs(hit.replaced or {}) do
    replaced[#replaced + 1] = { text = older.text, said = time.iso(older.timestamp) }
  end
  for _, later in ipairs(hit.newer or {}) do
    newer[#newer + 1] = id == record.id and later or shared.fact(later)
  end
  return {
    id = id,
    text = record.text,
    type = record.type or "world",
    context = record.context or "general",
    event_date = record.event_date and time.iso(record.event_date) or json.null,
    said = record.said,
    score = hit.score,
    happened = record.happened,
    tags = shared.filled(record.tags),
    flags = shared.filled(record.flags),
    replaced = shared.filled(replaced),
    newer = shared.filled(newer),
  }
end

-- A list; nil if it is empty.
function shared.filled(list) return list and #list > 0 and json.array(list) or nil end

shared.HINT = "Does this make one of these untrue? Then call supersede_memory with its id; otherwise do nothing."
shared.SUPERSEDES = {
  type = "array",
  items = { type = "string" },
  description = "Ids of memories that this makes untrue: they are replaced by it, kept, and back after an undo. A plan that happened or a one-off beside a habit makes nothing untrue",
}

-- Memories that a write names: those it replaced, or that are similar. `name` makes the id of the dialect; nil if there are none.
function shared.named(memories, name)
  local shown = json.array({})
  for _, memory in ipairs(memories or {}) do
    shown[#shown + 1] = { id = name(memory.id), text = memory.text, said = memory.said, score = memory.score }
  end
  return shared.filled(shown)
end

local function iso(ms) return ms and time.iso(ms) or json.null end

-- A memory over Hindsight's REST. The names given with it stand in its metadata, as its own clients want them: texts.
function shared.unit(record)
  local metadata, entities = json.object({}), json.array({})
  for name, value in pairs(record.metadata or {}) do
    if name == "entities" and type(value) == "table" then
      for _, entity in ipairs(value) do entities[#entities + 1] = entity end
    else
      metadata[name] = type(value) == "string" and value or json.encode(value)
    end
  end
  return {
    id = record.id,
    text = record.text,
    type = record.type or "world",
    fact_type = record.type or "world",
    context = record.context or json.null,
    date = record.said,
    mentioned_at = record.said,
    occurred_start = iso(record.event_date),
    occurred_end = iso(record.event_end or record.event_date),
    document_id = record.document_id or json.null,
    entities = entities,
    metadata = metadata,
    tags = json.array(record.tags),
    state = record.deleted_at and "invalidated" or "valid",
    invalidated_at = iso(record.deleted_at),
    updated_at = iso(record.updated),
  }
end

-- Adds to a filter what `tags` and `tags_match` admit: any and all let through what has no tags, the others do not.
function shared.admit_tags(filter, tags, match)
  match = match or "any"
  if match == "exact" then
    filter.tags = tags and #tags > 0 and { has_all = tags, has_only = tags } or { exists = false }
  elseif tags and #tags > 0 then
    local operator = string.find(match, "all") and "has_all" or "has_any"
    local tagged = { tags = { [operator] = tags } }
    if string.find(match, "strict") then
      filter.tags = tagged.tags
    else
      filter.all = filter.all or json.array({})
      filter.all[#filter.all + 1] = { any = { tagged, { tags = { exists = false } } } }
    end
  end
  return filter
end

-- Adds to a filter what types and what context admit. A memory without one is shown as of the world, and as of the general
-- context, and found as that.
function shared.admit_kinds(filter, types, context)
  local function admit(alternatives)
    filter.all = filter.all or json.array({})
    filter.all[#filter.all + 1] = { any = json.array(alternatives) }
  end
  if types and #types > 0 then
    local alternatives = { { type = { ["in"] = json.array(types) } } }
    for _, name in ipairs(types) do
      if name == "world" then alternatives[2] = { type = { exists = false } } end
    end
    admit(alternatives)
  end
  if context then
    local alternatives = { { context = context } }
    if context == "general" then alternatives[2] = { context = { exists = false } } end
    admit(alternatives)
  end
  return filter
end

-- The fields that a request's time may be of.
shared.TIME_FIELD = { mentioned_at = "timestamp", occurred_start = "event_date", created_at = "created" }

shared.TAGS_MATCH = { type = "string", enum = { "any", "all", "any_strict", "all_strict", "exact" }, default = "any" }

-- The text of a content: a text, or blocks of text.
function shared.text_of(content)
  if type(content) == "string" then return content end
  local parts = {}
  for _, block in ipairs(content) do
    if block.type ~= "text" then
      error.throw({ kind = "invalid_params", message = "content: blocks of type '" .. tostring(block.type) .. "' are not kept here; send text" })
    end
    parts[#parts + 1] = block.text
  end
  return table.concat(parts, "\n")
end

-- How many memories there are of each type; those without one are of the world.
function shared.by_type(groups)
  local counts = json.object({})
  for _, group in ipairs(groups) do
    local name = group.value or "world"
    counts[name] = (counts[name] or 0) + group.count
  end
  return counts
end

-- The memories that were retained under a document's id, in order.
function shared.records_of(document_id, context)
  local records, cursor = {}, nil
  repeat
    local page = context.memory.list({
      filter = { kind = "fact", document_id = document_id },
      order = "created",
      limit = 1000,
      cursor = cursor,
    })
    for _, record in ipairs(page.items) do records[#records + 1] = record end
    cursor = page.cursor
  until not cursor
  if #records == 0 then error.throw({ kind = "not_found", message = "no document with the id '" .. document_id .. "'" }) end
  return records
end

-- A document: what its memories say together.
function shared.document(document_id, context)
  local texts, tags, known, types = {}, json.array({}), {}, {}
  local records, updated = shared.records_of(document_id, context), 0
  for _, record in ipairs(records) do
    texts[#texts + 1] = record.text
    types[#types + 1] = { value = record.type, count = 1 }
    updated = math.max(updated, record.updated)
    for _, tag in ipairs(record.tags) do
      if not known[tag] then
        known[tag] = true
        tags[#tags + 1] = tag
      end
    end
  end
  local text = table.concat(texts, "\n")
  return {
    id = document_id,
    bank_id = context.bank.id,
    original_text = text,
    content_hash = crypto.sha256(text),
    created_at = time.iso(records[1].created),
    updated_at = time.iso(updated),
    memory_unit_count = #records,
    nodes_by_fact_type = shared.by_type(types),
    tags = tags,
  }
end

-- A bank, as Hindsight shows it.
function shared.profile(context)
  local config = context.bank.config() or {}
  return {
    bank_id = context.bank.id,
    name = config.name or context.bank.id,
    mission = config.mission or "",
    disposition = {
      skepticism = config.skepticism or 3,
      literalism = config.literalism or 3,
      empathy = config.empathy or 3,
    },
  }
end

return shared
