-- The prompt with which a conversation begins: what is remembered, as data to use and not as orders to follow.
agent = {
  name = "recall-context",
  description = "What is remembered of a topic (or of late), to begin a conversation with",
  arguments = { { name = "topic", description = "What the conversation will be about; without it, the latest memories" } },
}

local TASK = "You have a long-term memory of this user. Before you answer, search it for what is known; store with `store_memory` what the user "
  .. "says of themselves, their preferences, decisions and projects."

function agent.resolve(args, _, context)
  return { system = TASK .. "\n\n" .. context.memory.briefing({ topic = args.topic, category = "type" }).text }
end
