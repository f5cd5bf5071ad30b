// What a program may and may not write, for tsc: `make clients-check`. It is not run.
import { Client, HeadgateError, Refused, Worker } from "headgate";
import type { Decision, Lease, NewJob } from "headgate";

const client = new Client({ url: "https://headgate.example.com", key: "k", timeout: 5, retries: 1 });
const job: NewJob = { tenant: "acme", queue: "mail", type: "welcome", cost: 2 };

export async function producer(): Promise<string> {
  const decision: Decision = await client.check({ scope: "acme:mail", tokens: 1 });
  const results = await client.enqueueBatch([job, { ...job, id: "welcome-ada" }]);
  try {
    const verdict = await client.enqueue(job);
    return `${verdict.id} ${verdict.decision} ${decision.allowed} ${results.map((r) => r.status).join()}`;
  } catch (error) {
    if (error instanceof Refused) return `${error.reason ?? ""} ${(error.retryAfter ?? 0).toFixed(1)}`;
    if (error instanceof HeadgateError) return error.kind;
    throw error;
  }
}

export async function worker(): Promise<void> {
  const leases: Lease[] = (await client.lease("w-1")).jobs;
  const running = new Worker(client, { queues: { mail: 1 }, slots: 4, handlers: { welcome: async (one) => one.setCost(leases.length) } });
  await running.run();
}

// @ts-expect-error: a job has a tenant.
void client.enqueue({ queue: "mail", type: "welcome" });
// @ts-expect-error: tokens are a number.
void client.check({ scope: "acme", tokens: "1" });
// @ts-expect-error: there is no such option.
void new Client({ address: "http://127.0.0.1:9080" });
