-- Posts the bodies of a file, one per line, in turn: wrk … -s post.lua -- FILE
function init(args)
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
  bodies = {}
  for line in io.lines(args[1]) do
    bodies[#bodies + 1] = wrk.format(nil, nil, nil, line)
  end
  at = math.random(#bodies)
end

function request()
  at = at % #bodies + 1
  return bodies[at]
end

function done(summary, latency)
  local failed = summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.timeout
  io.write(string.format("RESULT %d %d %d %d\n", summary.requests, summary.duration, latency:percentile(99), failed))
end
