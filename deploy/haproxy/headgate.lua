-- Asks `headgate serve` about a request, by HAProxy's own HTTP client (2.5 or later), and leaves the answer in variables of the transaction:
--   txn.headgate_status               200 to let it pass, 429 or 503 to refuse it; 503 too while headgate gives no answer
--   txn.headgate_retry                Retry-After of a refusal, where it is of use to come back
--   txn.headgate_limit, _policy       RateLimit and RateLimit-Policy of either
local ADDRESS = "http://127.0.0.1:9082/authz" -- the frontend headgate of haproxy.cfg
local PATIENCE_MS = 2000                      -- more than that frontend takes: this client would ask again

-- What the original request may not say, since headgate goes by it; and what is of its body or its connection, which are not handed on.
local DROPPED = {
  ["x-forwarded-for"] = true, ["x-forwarded-method"] = true, ["x-forwarded-uri"] = true, ["x-original-method"] = true, ["x-original-uri"] = true,
  ["content-length"] = true, ["transfer-encoding"] = true, ["connection"] = true, ["upgrade"] = true, ["expect"] = true, ["te"] = true, ["host"] = true,
}

core.register_action("headgate", { "http-req" }, function(txn)
  local headers = {}
  for name, values in pairs(txn.http:req_get_headers()) do
    if not DROPPED[name] then
      headers[name] = {}
      for i = 0, #values do
        headers[name][i + 1] = values[i]
      end
    end
  end
  headers["x-forwarded-for"] = { txn.f:src() }
  headers["x-forwarded-method"] = { txn.f:method() }
  headers["x-forwarded-uri"] = { txn.f:pathq() }
  headers["host"] = { "headgate" }

  local answer = core.httpclient():get({ url = ADDRESS, headers = headers, timeout = PATIENCE_MS })
  local status = answer and answer.status
  if status ~= 200 and status ~= 429 then
    status = 503
  end
  txn:set_var("txn.headgate_status", status)
  local told = answer and answer.headers or {}
  for name, field in pairs({ headgate_retry = "retry-after", headgate_limit = "ratelimit", headgate_policy = "ratelimit-policy" }) do
    if told[field] then
      txn:set_var("txn." .. name, told[field][0])
    end
  end
end)
