-- The trusted Lua code of a worker: builds a script's environment, runs one entry and writes the answer.
--
-- It is loaded with the real globals and one argument, raw(op, payload) -> bytes: "+" and the answer, or "-" and a JSON error.
-- `raw` is the only way out of the process. A script never gets `raw`, the real globals, or a table of another runtime. A script
-- can change the library tables, so everything used after it has started is a local here, and no line below may use s:method().
local raw = ...
local MAX_DEPTH = 128 -- of JSON, in both directions: the limit of serde_json, for which the published scripts were written
local type, next, rawlen, rawget, rawset, rawequal, tostring, tonumber = type, next, rawlen, rawget, rawset, rawequal, tostring, tonumber
local error, pcall, xpcall, load, select, setmetatable, getmetatable = error, pcall, xpcall, load, select, setmetatable, getmetatable
local find, sub, byte, char, format, gsub, match =
  string.find, string.sub, string.byte, string.char, string.format, string.gsub, string.match
local concat, sort = table.concat, table.sort
local math_type, huge, floor, randomseed = math.type, math.huge, math.floor, math.randomseed
local utf8_char, utf8_len = utf8.char, utf8.len
local getinfo, collect, resume, status = debug.getinfo, collectgarbage, coroutine.resume, coroutine.status
local clock_s, now_s = os.clock, os.time
local real = _G

---------------------------------------------------------------------------------------------------- JSON
-- The metatable of a decoded table stores what a Lua table cannot (in `__jsontype`, as in dkjson): that an empty table was an
-- array, the length of an array with nulls, the null fields of an object. So a null reads as nil, as the published scripts
-- expect, and is written as null again.
local ARRAY = { __jsontype = "array" }
local OBJECT = { __jsontype = "object" }
local NULL = setmetatable({}, {
  __jsontype = "null",
  __metatable = "json.null",
  __tostring = function() return "null" end,
  __index = function() return nil end,
  __newindex = function() error("json.null has no fields", 2) end,
})

local ESCAPES = setmetatable(
  { ['"'] = '\\"', ["\\"] = "\\\\", ["\b"] = "\\b", ["\f"] = "\\f", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" },
  { __index = function(_, letter) return format("\\u%04x", byte(letter)) end }
)

-- In text for a reader or a search, a character that was cut in two (`body:sub(1, 300)`) is replaced. In text that a script reads
-- back (json.encode, context.store) it is an error.
local repairing, repaired = false, 0

local LONG = 100 -- bytes; above it Python's C encoder is faster than a pattern, including the call to the parent

local function encode_string(text, exact) -- `exact`: for keys, which must stay distinct
  if #text > LONG then
    local answer = raw("json.quote", text)
    if byte(answer, 1) == 43 then return sub(answer, 2) end
  elseif utf8_len(text) then
    if find(text, '[%c"\\]') then text = gsub(text, '[%z\1-\31"\\]', ESCAPES) end
    return '"' .. text .. '"'
  end
  if repairing and not exact then
    local answer = raw("json.repair", text)
    if byte(answer, 1) == 43 then
      repaired = repaired + 1
      return sub(answer, 2)
    end
  end
  error("a string is not valid UTF-8 (base64.encode makes it so)", 0)
end

local function encode_number(number)
  if math_type(number) == "integer" then return format("%d", number) end
  if number ~= number or number == huge or number == -huge then return "null" end
  local text = format("%.15g", number)
  if tonumber(text) ~= number then
    text = format("%.16g", number)
    if tonumber(text) ~= number then text = format("%.17g", number) end
  end
  if not find(text, "[%.eE]") then text = text .. ".0" end -- so that it is decoded as a float
  return text
end

local encode_value

-- A JSON array cannot hold the table's named fields, or items after a gap. The log says which were left out.
local left_out, left_out_name = 0, nil

local function leave_out(value, length, surplus)
  left_out = left_out + surplus
  for key in next, value do
    if left_out_name then return end
    if math_type(key) ~= "integer" or key < 1 or key > length then
      left_out_name = type(key) == "string" and sub(key, 1, 80) or type(key) == "number" and tostring(key) or type(key)
    end
  end
end

local function encode_array(value, length, out, n, depth, seen)
  local surplus = 0
  for _ in next, value do surplus = surplus + 1 end
  n = n + 1
  out[n] = "["
  for index = 1, length do
    if index > 1 then
      n = n + 1
      out[n] = ","
    end
    local item = rawget(value, index)
    if item ~= nil then surplus = surplus - 1 end
    n = encode_value(item, out, n, depth + 1, seen)
  end
  if surplus > 0 then leave_out(value, length, surplus) end
  n = n + 1
  out[n] = "]"
  return n
end

local function encode_object(value, nulls, out, n, depth, seen)
  local names, values, count = {}, {}, 0
  for key, item in next, value do
    local kind = type(key)
    if kind == "number" then
      key = math_type(key) == "integer" and format("%d", key) or encode_number(key)
    elseif kind ~= "string" then
      error("a table has a key of type " .. kind .. ", which JSON does not have", 0)
    end
    if values[key] ~= nil then error("a table has both the number and the string " .. key .. " as a key", 0) end
    count = count + 1
    names[count] = key
    values[key] = item
  end
  if nulls then
    for key in next, nulls do
      if values[key] == nil then
        count = count + 1
        names[count] = key
        values[key] = NULL
      end
    end
  end
  sort(names)
  n = n + 1
  out[n] = "{"
  for index = 1, count do
    local key = names[index]
    n = n + 1
    out[n] = (index > 1 and "," or "") .. encode_string(key, true) .. ":"
    n = encode_value(values[key], out, n, depth + 1, seen)
  end
  n = n + 1
  out[n] = "}"
  return n
end

function encode_value(value, out, n, depth, seen)
  local kind = type(value)
  if kind == "string" then
    out[n + 1] = encode_string(value)
    return n + 1
  elseif kind == "number" then
    out[n + 1] = encode_number(value)
    return n + 1
  elseif kind == "boolean" then
    out[n + 1] = value and "true" or "false"
    return n + 1
  elseif kind ~= "table" or rawequal(value, NULL) then
    out[n + 1] = "null" -- nil, and functions and threads, which JSON does not have
    return n + 1
  end
  if depth > MAX_DEPTH then error("a value is nested more than " .. MAX_DEPTH .. " deep", 0) end
  if seen[value] then error("a table contains itself", 0) end
  seen[value] = true
  local tag = getmetatable(value)
  local tagged, length = nil, rawlen(value)
  if type(tag) == "table" then
    tagged = rawget(tag, "__jsontype")
    local known = rawget(tag, "__jsonlength")
    if math_type(known) == "integer" and known > length and known < 10000000 then length = known end
  end
  if tagged == "array" or (tagged ~= "object" and length > 0) then
    n = encode_array(value, length, out, n, depth, seen)
  else
    local nulls = tagged == "object" and rawget(tag, "__jsonnulls")
    n = encode_object(value, type(nulls) == "table" and nulls, out, n, depth, seen)
  end
  seen[value] = nil
  return n
end

local function encode(value)
  local out = {}
  encode_value(value, out, 0, 1, {})
  return concat(out)
end

local function encode_repaired(value) -- as pcall(encode, value)
  repairing = true
  local ok, text = pcall(encode, value)
  repairing = false
  return ok, text
end

local UNESCAPES = { ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }

local function refuse(what, at) error(what .. " at byte " .. at, 0) end

-- The text before the next quote or escape. `%C` alone is five times faster than a character set, and only wrong for DEL.
local function plain_part(text, at, stop)
  local part = sub(text, at, stop - 1)
  if not find(part, "^%C*$") and find(part, "[%z\1-\31]") then refuse("a control character in a string", at) end
  return part
end

local function decode_escape(text, at) -- `at` is the position of the backslash
  local letter = sub(text, at + 1, at + 1)
  if letter ~= "u" then
    local plain = UNESCAPES[letter]
    if not plain then refuse("an unknown escape", at) end
    return plain, at + 2
  end
  local digits = match(text, "^%x%x%x%x", at + 2)
  if not digits then refuse("a \\u escape lacks its four digits", at) end
  local point, after = tonumber(digits, 16), at + 6
  if point >= 0xD800 and point < 0xDC00 then
    local low = match(text, "^\\u([dD][c-fC-F]%x%x)", after)
    if not low then refuse("half of a surrogate pair", at) end
    point, after = 0x10000 + (point - 0xD800) * 1024 + (tonumber(low, 16) - 0xDC00), after + 6
  elseif point >= 0xDC00 and point < 0xE000 then
    refuse("half of a surrogate pair", at)
  end
  return utf8_char(point), after
end

local function decode_string(text, at) -- `at` is the position after the opening quote
  local quote = find(text, '"', at, true)
  if not quote then refuse("a string has no end", #text) end
  local escape = find(text, "\\", at, true)
  if not escape or escape > quote then return plain_part(text, at, quote), quote + 1 end
  local out, n = {}, 0
  while true do
    if quote < at then
      quote = find(text, '"', at, true)
      if not quote then refuse("a string has no end", #text) end
    end
    if escape and escape < at then escape = find(text, "\\", at, true) end
    if not escape or escape > quote then
      out[n + 1] = plain_part(text, at, quote)
      return concat(out), quote + 1
    end
    out[n + 1] = plain_part(text, at, escape)
    out[n + 2], at = decode_escape(text, escape)
    n = n + 2
  end
end

local function decode_number(text, at)
  local _, stop = find(text, "^-?%d+", at)
  if not stop then refuse("an unexpected character", at) end
  if find(text, "^-?0%d", at) then refuse("a number with a leading zero", at) end
  local _, fraction = find(text, "^%.%d+", stop + 1)
  stop = fraction or stop
  local _, exponent = find(text, "^[eE][+-]?%d+", stop + 1)
  stop = exponent or stop
  local number = tonumber(sub(text, at, stop))
  if not number or number == huge or number == -huge then refuse("a number out of range", at) end
  return number, stop + 1
end

local function skip(text, at) return find(text, "[^ \t\r\n]", at) or #text + 1 end

local function dynamic_length(length)
  return function(array)
    local own = rawlen(array)
    return own > length and own or length
  end
end

local decode_value

local function decode_object(text, at, depth)
  local object, nulls = {}, nil
  at = skip(text, at + 1)
  if byte(text, at) == 125 then return setmetatable(object, OBJECT), at + 1 end
  while true do
    if byte(text, at) ~= 34 then refuse("a field's name should begin", at) end
    local key, value
    key, at = decode_string(text, at + 1)
    at = skip(text, at)
    if byte(text, at) ~= 58 then refuse("':' should stand", at) end
    value, at = decode_value(text, at + 1, depth + 1)
    if value == nil then
      nulls = nulls or {}
      nulls[key] = true
    end
    object[key] = value
    at = skip(text, at)
    local code = byte(text, at)
    if code == 125 then
      -- An object with only number-like fields needs no mark: its keys are strings, so its length is 0.
      if nulls then setmetatable(object, { __jsontype = "object", __jsonnulls = nulls }) end
      return object, at + 1
    elseif code ~= 44 then
      refuse("',' or '}' should stand", at)
    end
    at = skip(text, at + 1)
  end
end

local function decode_array(text, at, depth)
  local array, n, holes = {}, 0, false
  at = skip(text, at + 1)
  if byte(text, at) == 93 then return setmetatable(array, ARRAY), at + 1 end
  while true do
    local value
    value, at = decode_value(text, at, depth + 1)
    n = n + 1
    array[n] = value
    holes = holes or value == nil
    at = skip(text, at)
    local code = byte(text, at)
    if code == 93 then
      return setmetatable(array, holes and { __jsontype = "array", __jsonlength = n, __len = dynamic_length(n) } or ARRAY), at + 1
    elseif code ~= 44 then
      refuse("',' or ']' should stand", at)
    end
    at = at + 1
  end
end

function decode_value(text, at, depth)
  at = skip(text, at)
  local code = byte(text, at)
  if code == 34 then
    return decode_string(text, at + 1)
  elseif code == 123 or code == 91 then
    if depth > MAX_DEPTH then refuse("nested more than " .. MAX_DEPTH .. " deep", at) end
    if code == 123 then return decode_object(text, at, depth) end
    return decode_array(text, at, depth)
  elseif code == 116 and sub(text, at, at + 3) == "true" then
    return true, at + 4
  elseif code == 102 and sub(text, at, at + 4) == "false" then
    return false, at + 5
  elseif code == 110 and sub(text, at, at + 3) == "null" then
    return nil, at + 4
  elseif code == nil then
    refuse("the text ends", at)
  end
  return decode_number(text, at)
end

local function decode(text)
  local value, at = decode_value(text, 1, 1)
  at = skip(text, at)
  if at <= #text then refuse("something follows the value", at) end
  return value
end

---------------------------------------------------------------------------------------------------- errors
-- Errors with a kind: from `error.throw`, and from host calls in scripts that may use it. The caller sees the kind as a status.
local THROWN = {
  __metatable = "error",
  __tostring = function(thrown) return rawget(thrown, "message") end,
  __concat = function(left, right)
    local function text(part) return type(part) == "table" and rawget(part, "message") or tostring(part) end
    return text(left) .. text(right)
  end,
}
local KINDS = { not_found = true, invalid_params = true, conflict = true, forbidden = true, storage = true }
local WORDS = { not_found = "not_found", bad_request = "invalid_params", embeddings_disabled = "invalid_params", unauthorized = "forbidden", conflict = "conflict",
  store_error = "storage", busy = "storage" }
local typed = false -- whether this script's errors may have a kind

local function argument(value, name, position, level)
  local kind = type(value)
  if kind == "string" then return value end
  if kind == "number" then return tostring(value) end
  local got = value == nil and "nil" or kind
  error(format("bad argument #%d to '%s' (string expected, got %s)", position, name, got), (level or 2) + 1)
end

local function optional_table(value, name, position)
  if value == nil or type(value) == "table" then return value end
  error(format("bad argument #%d to '%s' (table expected, got %s)", position, name, type(value)), 3)
end

-- Calls the parent. `level` is as in error(), counted from the caller: with 2 a message names the script's line that called the
-- stub. No stub may end in a tail call, which would remove its frame.
local function ask(op, payload, level)
  local answer = raw(op, payload)
  if type(answer) ~= "string" then error(op .. ": no answer", level + 1) end
  if byte(answer, 1) == 43 then return sub(answer, 2) end
  local ok, failure = pcall(decode, sub(answer, 2))
  if not ok or type(failure) ~= "table" then failure = { message = op .. ": failed" } end
  if typed then
    local kind = WORDS[failure.word]
    if kind then error(setmetatable({ kind = kind, message = failure.message, data = failure.data }, THROWN), 0) end
  end
  error(failure.message, level + 1)
end

local function try_encode(value, op, level, repairs)
  local ok, text
  if repairs then
    ok, text = encode_repaired(value)
  else
    ok, text = pcall(encode, value)
  end
  if not ok then error(op .. ": " .. tostring(text), level + 1) end
  return text
end

local function ask_json(op, value, level, repairs)
  return decode(ask(op, try_encode(value, op, level + 1, repairs), level + 1))
end

---------------------------------------------------------------------------------------------------- parts
-- Parts that few scripts need are loaded at their first use. Loading them takes a third of the time of a new state.
local parts = {}

local function part(name)
  local loaded = parts[name]
  if loaded == nil then
    loaded = load(sub(raw("part", name), 2), "=" .. name, "b", {}) -- without globals: a part gets its locals as arguments
    parts[name] = loaded
  end
  return loaded
end

local loaded_dates

local function dates()
  loaded_dates = loaded_dates
    or part("dates")(find, sub, format, gsub, floor, tonumber, error, pcall, select, now_s, argument, optional_table)
  return loaded_dates
end

local function safe_os()
  return {
    clock = clock_s,
    difftime = function(later, earlier) return (tonumber(later) or 0) - (tonumber(earlier) or 0) + 0.0 end,
    time = function(t)
      if t == nil then return now_s() end
      return dates().time(t)
    end,
    date = function(pattern, second) return dates().date(pattern, second) end,
  }
end

---------------------------------------------------------------------------------------------------- the environment
local SAFE = { "assert", "error", "ipairs", "next", "pairs", "pcall", "xpcall", "rawequal", "rawget", "rawlen", "rawset", "select",
  "setmetatable", "getmetatable", "tonumber", "tostring", "type", "_VERSION" }

local function joined(...)
  local parts = {}
  for index = 1, select("#", ...) do parts[index] = tostring((select(index, ...))) end
  return concat(parts, "\t")
end

local function add_language(env)
  for _, name in next, SAFE do env[name] = real[name] end
  for _, name in next, { "string", "table", "math", "utf8", "coroutine" } do env[name] = real[name] end
  env._G = env
  env.load = function(chunk, name, _, ...)
    if type(chunk) == "function" then
      local parts, n = {}, 0
      while true do
        local part = chunk()
        if part == nil or part == "" then break end
        if type(part) ~= "string" then return nil, "reader function must return a string" end
        n = n + 1
        parts[n] = part
      end
      chunk = concat(parts)
    end
    if type(chunk) ~= "string" then error("bad argument #1 to 'load' (string expected, got " .. type(chunk) .. ")", 2) end
    local scope = env
    if select("#", ...) > 0 then scope = (...) end
    return load(chunk, type(name) == "string" and name or "=(load)", "t", scope)
  end
  env.collectgarbage = function(option)
    if option == nil or option == "collect" then
      collect()
      return 0
    elseif option == "count" then
      return collect("count")
    elseif option == "step" then
      return collect("step")
    end
    error("collectgarbage: only 'collect', 'count' and 'step' are open to scripts", 2)
  end
end

local PERCENT = setmetatable({}, { __index = function(_, letter) return format("%%%02X", byte(letter)) end })
local UNPERCENT = setmetatable({}, { __index = function(_, digits) return char(tonumber(digits, 16)) end })

local function add_pure(env)
  local function parse(text)
    local ok, value = pcall(decode, argument(text, "parse", 1))
    if not ok then error("json.parse: " .. tostring(value), 2) end
    return value
  end
  env.json = {
    parse = parse,
    decode = parse,
    encode = function(value)
      local ok, text = pcall(encode, value)
      if not ok then error("json.encode: " .. tostring(text), 2) end
      return text
    end,
    null = NULL,
    array = function(t) return setmetatable(optional_table(t, "array", 1) or {}, ARRAY) end,
    object = function(t) return setmetatable(optional_table(t, "object", 1) or {}, OBJECT) end,
  }
  env.base64 = {
    encode = function(bytes) return (ask("base64.encode", argument(bytes, "encode", 1), 2)) end,
    decode = function(text) return (ask("base64.decode", argument(text, "decode", 1), 2)) end,
  }
  env.uri = {
    encode = function(text) return (gsub(argument(text, "encode", 1), "[^A-Za-z0-9_.~-]", PERCENT)) end,
    decode = function(text) return (gsub(argument(text, "decode", 1), "%%(%x%x)", UNPERCENT)) end,
  }
  env.crypto = {
    sha256 = function(bytes) return (ask("crypto.sha256", argument(bytes, "sha256", 1), 2)) end,
    sha1 = function(bytes) return (ask("crypto.sha1", argument(bytes, "sha1", 1), 2)) end,
    md5 = function(bytes) return (ask("crypto.md5", argument(bytes, "md5", 1), 2)) end,
    uuid = function() return (ask("crypto.uuid", "", 2)) end,
    hmac_sha256 = function(key, bytes)
      key = argument(key, "hmac_sha256", 1)
      return (ask("crypto.hmac_sha256", format("%d:", #key) .. key .. argument(bytes, "hmac_sha256", 2), 2))
    end,
  }
end

local MAX_LOG_LINES = 1000 -- the parent counts too, because a script may control this process
local MAX_LOG_LETTERS = 2000

local function add_log(env)
  local lines = 0
  local function write(level, message)
    lines = lines + 1
    if lines > MAX_LOG_LINES then return end
    ask("log", level .. "\0" .. sub(message, 1, MAX_LOG_LETTERS), 3)
  end
  env.log = {}
  for _, level in next, { "info", "warn", "error", "debug" } do
    env.log[level] = function(message) write(level, argument(message, level, 1)) end
  end
  env.print = function(...) write("info", joined(...)) end
  env.warn = function(...) write("warn", concat({ ... })) end
end

local function string_map(map, name, level)
  if map == nil then return nil end
  if type(map) ~= "table" then error("bad option '" .. name .. "' (table expected, got " .. type(map) .. ")", level + 1) end
  local copy = {}
  for key, value in next, map do
    if type(value) == "boolean" then value = tostring(value) end
    if (type(key) ~= "string" and type(key) ~= "number") or (type(value) ~= "string" and type(value) ~= "number") then
      error("bad option '" .. name .. "': names and values are strings", level + 1)
    end
    copy[tostring(key)] = tostring(value)
  end
  return setmetatable(copy, OBJECT)
end

local HTTP_OPTIONS = { headers = true, params = true, timeout = true }
local ignored = {} -- unknown options, each logged once a call

local function http_request(method, url, body, options, takes_body)
  local level = 3
  local request = { method = method, url = url }
  if options then
    for option in next, options do
      if not (HTTP_OPTIONS[option] or (takes_body and option == "body") or ignored[option]) then
        ignored[option] = true
        local text = format("http: the option '%s' is unknown and does nothing (known: headers, params, timeout%s)",
          sub(tostring(option), 1, 40), takes_body and ", body" or "")
        ask("log", "warn\0" .. text, level)
      end
    end
    request.headers = string_map(rawget(options, "headers"), "headers", level)
    request.params = string_map(rawget(options, "params"), "params", level)
    local timeout_s = rawget(options, "timeout")
    if timeout_s ~= nil then
      if type(timeout_s) ~= "number" or not (timeout_s > 0) then
        error("bad option 'timeout' (a number of seconds above 0 expected)", level)
      end
      request.timeout_s = timeout_s < 1e9 and timeout_s or 1e9
    end
  end
  local answer = ask("http", try_encode(request, "http", level) .. "\0" .. (body or ""), level)
  local cut = find(answer, "\0", 1, true)
  local response = decode(sub(answer, 1, cut - 1))
  response.body = sub(answer, cut + 1)
  local ok, value = pcall(decode, response.body)
  if ok then response.json = value end
  return response
end

local function add_powers(env)
  env.http = {}
  for name, method in next, { get = "GET", head = "HEAD", delete = "DELETE" } do
    env.http[name] = function(url, options)
      return (http_request(method, argument(url, name, 1), nil, optional_table(options, name, 2)))
    end
  end
  for name, method in next, { post = "POST", put = "PUT", patch = "PATCH" } do
    env.http[name] = function(url, body, options)
      body = body == nil and "" or argument(body, name, 2)
      return (http_request(method, argument(url, name, 1), body, optional_table(options, name, 3)))
    end
  end
  env.http.request = function(method, url, options)
    method, options = argument(method, "request", 1), optional_table(options, "request", 3)
    local body = options and rawget(options, "body")
    if body ~= nil then body = argument(body, "options.body", 3) end
    return (http_request(method, argument(url, "request", 2), body, options, true))
  end
  env.env = { get = function(name) return (decode(ask("env.get", argument(name, "get", 1), 2))) end }
  env.fs = {
    read = function(path) return (ask("fs.read", argument(path, "read", 1), 2)) end,
    list = function(folder, glob)
      folder = folder == nil and "." or argument(folder, "list", 1)
      if glob ~= nil then glob = argument(glob, "list", 2) end
      return (ask_json("fs.list", { dir = folder, glob = glob }, 2))
    end,
  }
  env.sleep = function(seconds)
    if type(seconds) ~= "number" or not (seconds >= 0 and seconds < huge) then
      error("bad argument #1 to 'sleep' (a finite number of seconds, 0 or more, expected)", 2)
    end
    ask("sleep", format("%.6f", seconds), 2)
  end
end

local function amount(value, name, position)
  if type(value) == "number" and value == value and value > -huge and value < huge then return value end
  error(format("bad argument #%d to '%s' (a finite number expected, got %s)", position, name, type(value)), 3)
end

local function add_documents(context)
  context.search = function(query, options)
    if type(query) == "table" then
      options = query
      query = rawget(options, "query")
    end
    query = argument(query, "search", 1)
    options = optional_table(options, "search", 2) or {}
    local request = {}
    for name, value in next, options do request[name] = value end
    request.query = query -- the tool checks the other fields: a typo must not look like "nothing found"
    return (ask_json("context.search", request, 2, true))
  end
  context.get = function(id) return (ask_json("context.get", { id = argument(id, "get", 1) }, 2)) end
  context.outline = function(path, options)
    local request = {}
    for name, value in next, optional_table(options, "outline", 2) or {} do request[name] = value end
    request.path = argument(path, "outline", 1)
    return (ask_json("context.outline", request, 2, true))
  end
  context.symbol = function(name, options)
    local request = {}
    for key, value in next, optional_table(options, "symbol", 2) or {} do request[key] = value end
    request.name = argument(name, "symbol", 1)
    return (ask_json("context.symbol", request, 2, true))
  end
  context.sources = function() return (ask_json("context.sources", {}, 2)) end
  context.call = function(name, arguments)
    name, arguments = argument(name, "call", 1), optional_table(arguments, "call", 2)
    return (ask_json("context.call", { name = name, arguments = arguments or setmetatable({}, OBJECT) }, 2, true))
  end
  context.progress = function(done, total, message)
    if message ~= nil then message = argument(message, "progress", 3) end
    ask_json("context.progress", { done = amount(done, "progress", 1), total = total and amount(total, "progress", 2), message = message }, 2, true)
  end
  context.store = {
    get = function(key) return (ask_json("context.store.get", { key = argument(key, "get", 1) }, 2)) end,
    set = function(key, value) -- a value is stored completely or refused
      local before = left_out
      key = argument(key, "set", 1)
      if type(value) == "function" or type(value) == "thread" then error("bad argument #2 to 'set' (a " .. type(value) .. " cannot be kept)", 2) end
      local text = try_encode({ key = key, value = value }, "context.store.set", 2)
      if left_out > before then error("context.store.set: a table has list items and the field '" .. left_out_name .. "': JSON keeps the items alone", 2) end
      ask("context.store.set", text, 2)
    end,
    add = function(key, number)
      key, number = argument(key, "add", 1), number == nil and 1 or amount(number, "add", 2)
      return (ask_json("context.store.add", { key = key, number = number }, 2))
    end,
    keys = function() return (ask_json("context.store.keys", {}, 2)) end,
  }
end

-- Sends one item of a scan. An item that cannot be written as JSON is reported, and the scan goes on.
local MAX_ITEM_BYTES = (16 << 20) - 64 -- a frame without its operation
local emitted = 0
local function emit(item)
  emitted = emitted + 1
  local id = type(item) == "table" and rawget(item, "source_id")
  local ok, text
  if type(id) == "string" and not utf8_len(id) then -- a repaired id could equal another item's
    ok, text = false, "its source_id is not valid UTF-8"
  else
    ok, text = encode_repaired(item)
  end
  if ok and #text <= MAX_ITEM_BYTES then
    ask("emit", text, 2)
  else
    text = ok and "its JSON has " .. #text .. " bytes, the most is " .. MAX_ITEM_BYTES or text
    ask("emit_problem", encode("item " .. emitted .. ": " .. tostring(text)), 2)
  end
end

local function new_environment(kind, context, grants)
  local env = {}
  add_language(env)
  add_pure(env)
  add_log(env)
  add_powers(env)
  add_documents(context)
  if kind == "connector" then
    env.emit = emit
    context.emit = emit
  end
  if find(grants, " memory ", 1, true) then
    typed = true
    local add_memory = part("memory")(ask, ask_json, argument, optional_table, dates, THROWN, KINDS, error, type, next, rawget, rawset,
      tostring, tonumber, select, setmetatable, find, format, gsub, floor)
    add_memory(env, context)
  end
  return env
end

string.dump = nil -- the string metatable points at this table
getmetatable("").__metatable = "locked"

---------------------------------------------------------------------------------------------------- running
local function printable(text)
  return (gsub(text, "[\128-\255]+", function(run) return utf8_len(run) and run or "?" end))
end

-- The innermost calls. debug.traceback would count the whole stack first: 1.5 s after an endless recursion.
local function innermost()
  local lines = {}
  for level = 3, 22 do
    local info = getinfo(level, "Sln")
    if not info then break end
    if info.currentline > 0 then
      lines[#lines + 1] = info.short_src .. ":" .. info.currentline .. ": in " .. (info.name or info.what)
    end
  end
  return concat(lines, "\n")
end

-- Turns an error value into {message, traceback, kind, data} without calling a metamethod of the script.
local function describe(raised)
  local kind = type(raised)
  local failure = { traceback = printable(sub(innermost(), 1, 4000)) }
  if kind == "string" or kind == "number" then
    failure.message = printable(sub(tostring(raised), 1, 4000))
  elseif kind == "table" then
    local message = rawget(raised, "message")
    if type(message) == "string" then
      failure.message = printable(sub(message, 1, 4000))
    else
      local ok, text = pcall(encode, raised)
      failure.message = ok and sub(text, 1, 4000) or "the script raised a table that JSON cannot say"
      failure.message = printable(failure.message)
    end
    if typed and KINDS[rawget(raised, "kind")] then
      failure.kind = rawget(raised, "kind")
      local data = rawget(raised, "data")
      if data ~= nil and pcall(encode, data) then failure.data = data end
    end
  else
    failure.message = kind == "nil" and "the script raised an error without a message" or "the script raised a " .. kind
  end
  return failure
end

local MAX_FIELDS = 50
local METADATA = {
  tool = { "name", "description", "parameters", "output", "annotations", "title", "failure" },
  connector = { "name", "description", "config" },
  agent = { "name", "description", "tools", "arguments" },
}
local ENTRIES = { tool = "execute", connector = "scan", agent = "resolve" }

local function stream(produced)
  local kind = type(produced)
  if kind == "function" then
    for item in produced do emit(item) end
  elseif kind == "thread" then
    while status(produced) ~= "dead" do
      local ok, item = resume(produced)
      if not ok then error(item, 0) end
      if item ~= nil then emit(item) end
    end
  elseif kind == "table" then
    local field = next(produced)
    if field ~= nil and rawlen(produced) == 0 and emitted == 0 then -- probably an error reply, not an empty source
      error("connector.scan must return a list of items, not a table with the field '" .. tostring(field) .. "' and no items", 0)
    end
    for index = 1, rawlen(produced) do
      emit(rawget(produced, index))
      produced[index] = false -- free the item once it is sent
    end
  elseif kind ~= "nil" then
    error("connector.scan must return a table of items, an iterator or nothing, not a " .. kind, 0)
  end
  return { count = emitted }
end

local function text_of(source)
  if sub(source, 1, 3) == "\239\187\191" then source = sub(source, 4) end
  if byte(source, 1) == 35 then source = "--" .. source end -- a shebang line
  return source
end

local function perform(kind, entry, name, source, arguments, context, grants)
  context = decode(context)
  if type(context) ~= "table" then context = {} end
  if type(context.config) ~= "table" then context.config = setmetatable({}, OBJECT) end
  local config = context.config
  local env = new_environment(kind, context, grants)
  -- `os` is a local of the script and not a global: os.date works, and code that walks _G finds no os.
  local chunk, problem = load("local os = ...; " .. text_of(source), "=" .. name, "t", env)
  if not chunk then error("syntax: " .. problem, 0) end
  chunk(safe_os())
  local main = rawget(env, kind)
  if type(main) ~= "table" then error("the script must define a global table '" .. kind .. "'", 0) end
  local wanted = ENTRIES[kind]
  local call = main[wanted]
  if type(call) ~= "function" then error("the script does not define the function " .. kind .. "." .. wanted, 0) end
  if entry == "metadata" then
    local metadata, count = {}, 0
    for _, field in next, METADATA[kind] do metadata[field] = rawget(main, field) end
    for field, value in next, main do -- of other fields only the names, which may be misspelt
      if type(field) == "string" and type(value) ~= "function" and metadata[field] == nil and count < MAX_FIELDS then
        metadata[sub(field, 1, 80)], count = true, count + 1
      end
    end
    return setmetatable(metadata, OBJECT)
  end
  if kind == "tool" then return (call(decode(arguments), context)) end
  if kind == "agent" then return (call(decode(arguments), config, context)) end
  return stream((call(config, context)))
end

local function log_losses()
  if repaired > 0 then raw("log", "warn\0text was cut inside a character and is mended with U+FFFD: texts=" .. repaired) end
  if left_out > 0 then
    local advice = "a table with list items is an array in JSON, its other fields are left out (json.object keeps them)"
    raw("log", format("warn\0%s: fields=%d first=%s", advice, left_out, printable(left_out_name)))
  end
end

-- Runs one entry. Returns "+" and the result, or "-" and {message, traceback, kind, data}, as JSON.
return function(kind, entry, name, source, arguments, context, grants, seed)
  randomseed(seed)
  typed, emitted, repairing, repaired = false, 0, false, 0
  left_out, left_out_name = 0, nil
  local ok, outcome = xpcall(perform, describe, kind, entry, name, source, arguments, context, grants)
  if ok then
    local encoded, text = encode_repaired(outcome)
    log_losses()
    if encoded then return "+" .. text end
    outcome = { message = "the result cannot be written as JSON: " .. (type(text) == "string" and printable(text) or "out of memory") }
  else
    log_losses()
  end
  if type(outcome) ~= "table" then
    outcome = { message = type(outcome) == "string" and printable(sub(outcome, 1, 4000)) or "the script failed beyond description" }
  end
  local encoded, text = pcall(encode, outcome)
  return "-" .. (encoded and text or '{"message":"the script failed beyond description"}')
end
