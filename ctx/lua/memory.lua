-- For scripts with a memory bank: context.memory, context.bank, error.throw and time. Their functions call the parent.
--
-- A part of the prelude: it gets its locals as arguments and returns a function that adds these to an environment.
local ask, ask_json, argument, optional_table, dates, THROWN, KINDS, plain_error, type, next, rawget, rawset, tostring,
  tonumber, select, setmetatable, find, format, gsub, floor = ...

-- A function whose arguments go to the parent as one JSON array.
local function remote(op)
  return function(...)
    local n = select("#", ...)
    local arguments = setmetatable({ ... }, { __jsontype = "array", __jsonlength = n })
    return (ask_json(op, arguments, 2))
  end
end

return function(env, context)
  context.memory = setmetatable({}, {
    __index = function(memory, name)
      if type(name) ~= "string" or not find(name, "^[a-z_]+$") then return nil end
      local call = remote("memory." .. name)
      rawset(memory, name, call)
      return call
    end,
  })
  context.bank = context.bank or {}
  for _, name in next, { "exists", "config" } do context.bank[name] = remote("bank." .. name) end
  env.error = setmetatable({
    throw = function(fields)
      fields = optional_table(fields, "throw", 1) or {}
      local kind = rawget(fields, "kind")
      if not KINDS[kind] then plain_error("error.throw: kind must be one of not_found, invalid_params, conflict, forbidden, storage", 2) end
      plain_error(setmetatable({ kind = kind, message = tostring(rawget(fields, "message") or kind), data = rawget(fields, "data") }, THROWN), 0)
    end,
  }, { __call = function(_, message, level) plain_error(message, (level or 1) > 0 and (level or 1) + 1 or 0) end, __metatable = "error" })
  env.time = {
    now = function() return tonumber(ask("time.now", "", 2)) | 0 end,
    iso = function(ms, pattern)
      ms = tonumber(ms) or tonumber(ask("time.now", "", 2))
      local second = floor(ms / 1000)
      local moment, rest = dates().civil(second), floor(ms - second * 1000)
      local whole = pattern == nil and "%Y-%m-%dT%H:%M:%S" or argument(pattern, "iso", 2)
      whole = gsub(whole, "%%Y", format("%04d", moment.year)) -- os.date leaves the year 500 at three digits, as C does
      return dates().strftime(whole, moment) .. (pattern ~= nil and "" or rest > 0 and format(".%03dZ", rest) or "Z")
    end,
  }
end
