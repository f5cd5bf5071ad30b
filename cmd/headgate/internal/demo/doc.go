// Package demo tells the product's story in the time of a coffee sip, on the real thing: three tenants of three tiers
// share a few slots of one worker.
//
//	clinic   premium    urgent alerts, each of which must start soon or not at all        calls sms
//	bakery   standard   receipts, through a downstream that dies for a while and recovers  calls mail
//	crawler  basic      floods the same class as the bakery, far above its limit          calls web
//
// The length is divided into twenty parts, of one second each by default:
//
//	part   0          2          5              9          11           18           20
//	       │ all calm │          │  mail dead   │  alive   │    calm    │ nothing is │
//	       │          │ ◀────── the crawler floods ───────▶ │            │ sent; what │
//	       │          │          │              │          │            │ waits runs │
//
// What a newcomer is to see: a flood is refused at the gate and what of it gets in delays nobody else; urgent work
// starts in time; a dead downstream costs a handful of attempts and holds back its own jobs, unharmed, and no others;
// at the end every job is accounted for.
package demo
