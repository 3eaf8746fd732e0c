-- The calendar behind os.date and os.time, in UTC. C's functions would read time zone files and the locale.
--
-- A part of the prelude: it gets its locals as arguments and returns {time, date, strftime, civil}.
local find, sub, format, gsub, floor, tonumber, error, pcall, select, now_s, argument, optional_table = ...
local DAYS = { "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday" }
local MONTHS = { "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December" }

local function days_of(year, month, day) -- since 1970-01-01; months out of range carry over
  year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
  if month <= 2 then year = year - 1 end
  local era = year // 400
  local year_of_era = year - era * 400
  local day_of_year = (153 * (month + (month > 2 and -3 or 9)) + 2) // 5 + day - 1
  return era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468
end

local function civil(second)
  local days = second // 86400
  local rest = second - days * 86400
  local shifted = days + 719468
  local era = shifted // 146097
  local day_of_era = shifted - era * 146097
  local year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
  local day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
  local shifted_month = (5 * day_of_year + 2) // 153
  local month = shifted_month + (shifted_month < 10 and 3 or -9)
  local year = year_of_era + era * 400 + (month <= 2 and 1 or 0)
  return {
    year = year, month = month, day = day_of_year - (153 * shifted_month + 2) // 5 + 1,
    hour = rest // 3600, min = rest % 3600 // 60, sec = rest % 60,
    wday = (days + 4) % 7 + 1, yday = days - days_of(year, 1, 1) + 1, isdst = false,
  }
end

local function iso_week(t) -- year and week of ISO 8601
  local weekday = (t.wday + 5) % 7 -- Monday is 0
  local week = (t.yday - 1 - weekday + 10) // 7
  local function weeks(year)
    local first = (days_of(year, 1, 1) + 3) % 7 -- Monday is 0
    local leap = days_of(year + 1, 1, 1) - days_of(year, 1, 1) == 366
    return (first == 3 or (leap and first == 2)) and 53 or 52
  end
  if week < 1 then return t.year - 1, weeks(t.year - 1) end
  if week > weeks(t.year) then return t.year + 1, 1 end
  return t.year, week
end

local strftime

local FORMATS = {
  a = function(t) return sub(DAYS[t.wday], 1, 3) end, A = function(t) return DAYS[t.wday] end,
  b = function(t) return sub(MONTHS[t.month], 1, 3) end, B = function(t) return MONTHS[t.month] end,
  c = function(t) return strftime("%a %b %e %H:%M:%S %Y", t) end, C = function(t) return format("%02d", t.year // 100) end,
  d = function(t) return format("%02d", t.day) end, D = function(t) return strftime("%m/%d/%y", t) end,
  e = function(t) return format("%2d", t.day) end, F = function(t) return strftime("%Y-%m-%d", t) end,
  g = function(t) return format("%02d", (iso_week(t)) % 100) end, G = function(t) return format("%d", (iso_week(t))) end,
  h = function(t) return sub(MONTHS[t.month], 1, 3) end, H = function(t) return format("%02d", t.hour) end,
  I = function(t) return format("%02d", (t.hour + 11) % 12 + 1) end, j = function(t) return format("%03d", t.yday) end,
  m = function(t) return format("%02d", t.month) end, M = function(t) return format("%02d", t.min) end,
  n = function() return "\n" end, p = function(t) return t.hour < 12 and "AM" or "PM" end,
  r = function(t) return strftime("%I:%M:%S %p", t) end, R = function(t) return strftime("%H:%M", t) end,
  s = function(t) return format("%d", days_of(t.year, t.month, t.day) * 86400 + t.hour * 3600 + t.min * 60 + t.sec) end,
  S = function(t) return format("%02d", t.sec) end, t = function() return "\t" end,
  T = function(t) return strftime("%H:%M:%S", t) end, u = function(t) return format("%d", (t.wday + 5) % 7 + 1) end,
  U = function(t) return format("%02d", (t.yday - t.wday + 7) // 7) end,
  V = function(t) return format("%02d", (select(2, iso_week(t)))) end, w = function(t) return format("%d", t.wday - 1) end,
  W = function(t) return format("%02d", (t.yday - 1 - (t.wday + 5) % 7 + 7) // 7) end,
  x = function(t) return strftime("%m/%d/%y", t) end, X = function(t) return strftime("%H:%M:%S", t) end,
  y = function(t) return format("%02d", t.year % 100) end, Y = function(t) return format("%d", t.year) end,
  z = function() return "+0000" end, Z = function() return "UTC" end, ["%"] = function() return "%" end,
}

function strftime(pattern, t)
  return (gsub(pattern, "%%([EO]?)(.?)", function(_, letter)
    local write = FORMATS[letter]
    if not write then error("bad argument #1 to 'date' (invalid conversion specifier '%" .. letter .. "')", 0) end
    return write(t)
  end))
end

local function whole(value, name, missing, level)
  if value == nil then
    if missing then return missing end
    error("field '" .. name .. "' missing in date table", level + 1)
  end
  local number = tonumber(value)
  if not number or number ~= floor(number) or number < -2 ^ 31 or number > 2 ^ 31 then
    error("field '" .. name .. "' is not an integer", level + 1)
  end
  return number // 1 | 0
end

return {
  time = function(t)
    optional_table(t, "time", 1)
    local days = days_of(whole(t.year, "year", nil, 2), whole(t.month, "month", nil, 2), whole(t.day, "day", nil, 2))
    return days * 86400 + whole(t.hour, "hour", 12, 2) * 3600 + whole(t.min, "min", 0, 2) * 60 + whole(t.sec, "sec", 0, 2)
  end,
  date = function(pattern, second)
    pattern = pattern == nil and "%c" or argument(pattern, "date", 1)
    second = second == nil and now_s() or tonumber(second)
    if not second or second ~= second or second < -2 ^ 55 or second > 2 ^ 55 then
      error("bad argument #2 to 'date' (a time expected)", 2)
    end
    local t = civil(floor(second))
    pattern = gsub(pattern, "^!", "") -- local time is UTC here
    if find(pattern, "^%*t") then return t end
    local ok, text = pcall(strftime, pattern, t)
    if not ok then error(text, 2) end
    return text
  end,
  strftime = strftime,
  civil = civil,
}
