# A policy of Open Policy Agent that asks `headgate serve` whether a request's tenant has a token left, as one condition among others. OPA's process
# has HEADGATE_URL, as http://127.0.0.1:9080, and HEADGATE_KEY, a key of the role producer (headgate key new --role producer).
package headgate

# input: {"tenant": "acme", "queue": "search", "cost": 1}; queue and cost may be left out.
default allow := false

allow if answer.status_code == 200

# retry_after is in seconds, of a refusal.
retry_after := to_number(answer.headers["retry-after"][0]) if not allow

# refused_by is the scope whose bucket holds too little.
refused_by := answer.body.answers[0].refused_by if answer.status_code == 429

# HTTP's 4xx and 5xx besides, and silence (status_code 0): allow stays false, which fails closed. Put `allow if away` in to fail open.
away if not answer.status_code in {200, 429}

# A decision asks once, however many rules read the answer: OPA remembers a call within a query. It keeps none for the next, for each costs a token.
answer := http.send({
	"method": "POST",
	"url": sprintf("%s/api/v1/rate-limit/check", [opa.runtime().env.HEADGATE_URL]),
	"headers": {"Content-Type": "application/json", "Authorization": sprintf("Bearer %s", [opa.runtime().env.HEADGATE_KEY])},
	"body": {"scope": scope, "tokens": object.get(input, "cost", 1)},
	"timeout": "500ms",
	"raise_error": false,
})

scope := sprintf("%s:%s", [input.tenant, input.queue]) if input.queue

scope := input.tenant if not input.queue
