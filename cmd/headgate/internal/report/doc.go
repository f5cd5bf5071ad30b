// Package report says what came of a run: one JSON object for programs, tables and a picture for people, and progress
// while it runs. It exists so that demo and replay report alike. What a figure means is written in package ledger.
//
// # JSON
//
// With --json a run ends with one object on standard output, and nothing else is written there:
//
//	rows                   of the input = submitted + bad_rows + excluded_rows, unless the run was interrupted
//	bad_rows               those that could not be a job
//	submitted              = admitted + duplicates + Σ refused; refused is by reason
//	admitted               = completed + expired + dropped + cancelled + dead + waiting, all six as Redis holds them at
//	                       the end; waiting includes jobs behind a gate, for later, and in workers' hands
//	failed_attempts        runs of handlers that failed
//	conserved              whether that sum holds in Redis, the places agree with the jobs it holds, and it accepted as
//	                       many as this run was told
//	classes                by class: dispatched (jobs whose handler started), wait_p50_ms, wait_p99_ms, and the same in
//	                       dispatches: wait_steps_p50, wait_steps_p99
//	order_head             H, M, L: dispatches in a row while all classes were runnable
//	tenants                count, jain, light_wait_p99_ms, and jain_compared, the number of tenants that jain compares; it
//	                       is 1 where jain_compared is 0
//	breakers               those that opened: downstream, state, opened, held_back
//	wall_s, jobs_per_s     from the first job to the end, and jobs started in each second of it
//	estimate_median_error  relative, of estimate_compared jobs that had to wait and were told how long
//	healthy                of the downstreams whose breaker never opened: dispatched, wait_steps_p50, _p99 and _max, and
//	                       wait_own_steps_..., which count only dispatches of such downstreams: a run without the ill
//	                       ones is compared by these
//	downstreams            by name: dispatched, failed_attempts, wait_steps_p50, wait_steps_p99
//	excluded_rows          those that the user asked to leave out
//	interrupted            whether a signal ended the run early
package report
