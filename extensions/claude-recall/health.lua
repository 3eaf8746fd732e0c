-- The health of the server in Claude Recall's words. The heap figures are the process's data segment: Python has no heap of V8's kind.
tool = { name = "health", description = "Server health information", parameters = { type = "object", properties = {} } }

function tool.execute(_, context)
  local health = context.health()
  return {
    status = health.database == "connected" and "healthy" or "unhealthy",
    version = health.version,
    uptime = health.uptime_s,
    memory = { heapUsed = health.heap_bytes, heapTotal = health.heap_bytes, external = 0, rss = health.rss_bytes },
    sessions = health.sessions,
    toolsRegistered = health.tools,
    database = health.database,
    rateLimiter = { requestsPerMinute = health.limit, currentRequests = health.current },
  }
end
