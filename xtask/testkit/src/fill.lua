-- Makes as many keys of all types, small and large, as the first argument says.
for i = 1, tonumber(ARGV[1]) do
  local key = (i % 2 == 0 and 'a:' or 'b:') .. i
  local kind = i % 20
  local many = kind % 2 == 0 and 10 or 15
  local function add(command)
    for j = 1, many do
      local member = 'member' .. j
      if command == 'hset' or command == 'zadd' then redis.call(command, key, command == 'zadd' and j or 'f' .. j, member .. string.rep('m', kind % 2 * 70))
      elseif command == 'xadd' then redis.call(command, key, '*', 'field', member)
      else redis.call(command, key, member) end
    end
  end
  if kind < 5 then redis.call('set', key, string.rep('v', i % 40))
  elseif kind < 7 then redis.call('set', key, i)
  elseif kind < 12 then redis.call('set', key, string.rep('w', 100 + i % 1900))
  elseif kind < 14 and i % 40 == kind then
    add('hset')
    if i % 80 == kind then redis.pcall('hexpire', key, 1000000, 'FIELDS', 1, 'f1') end
  elseif kind < 16 then redis.call('sadd', key, 1, 2, i)
  elseif kind < 18 and i % 40 == kind then add('zadd')
  elseif i % 40 == 18 then add('rpush')
  elseif i % 40 == 19 then add('sadd')
  elseif i % 200 == 39 then add('xadd')
  else redis.call('rpush', key, i) end
  if i % 3 == 0 then redis.call('expire', key, 1000000) end
end
