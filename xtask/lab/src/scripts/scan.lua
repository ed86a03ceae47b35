local cursor = '0'
repeat cursor = redis.call('SCAN', cursor, 'COUNT', 1000)[1] until cursor == '0'
return 'OK'
