-- Says for each type and encoding how many keys there are, what they take, and how many never expire.
local all = {}
for _, key in ipairs(redis.call('keys', '*')) do
  local name = redis.call('type', key)['ok'] .. ' ' .. redis.call('object', 'encoding', key)
  local sum = all[name] or {0, 0, 0}
  all[name] = sum
  sum[1] = sum[1] + 1
  sum[2] = sum[2] + redis.call('memory', 'usage', key, 'samples', 0)
  if redis.call('ttl', key) < 0 then sum[3] = sum[3] + 1 end
end
local lines = {}
for name, sum in pairs(all) do
  lines[#lines + 1] = name .. ' ' .. sum[1] .. ' ' .. sum[2] .. ' ' .. sum[3]
end
return lines
