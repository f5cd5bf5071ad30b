// Package trace reads what a job system did in the past, a CSV file with one request a row, so that it can be done
// again. It exists to keep all that is particular to such files (column names, times in several notations, rows
// that lack half their cells) out of the replay.
//
//	column (default name)                   becomes
//	gmt_create                              Row.Arrival: "2024-11-15 16:57:50", RFC 3339, or seconds since 1970
//	predict_type                            Row.Type, which routes the job
//	predict_status                          Row.Fails: whether it is FAILED
//	exec_time_seconds                       Row.RunTime
//	groupId                                 Row.Tenant
//	prompt_length + negative_prompt_length  Row.Bytes, the size of the payload; an empty cell is 0
//	num_images_per_prompt, num_inference_steps  Row.Cost = ⌈images × steps / 30⌉, at least 1
//	checkpoint_model_version_id             Row.Downstream
//
// Arrival and tenant must have a column; a file without one of the others is read as if each row had its default: type job, no failure,
// no run time, no payload, cost 1, no downstream. A run time is in seconds, or has its unit, as in 250ms.
//
// A row that cannot be a job is bad: it is returned with its line and its reason, never dropped in silence. Real
// files have such rows, so they do not stop the reading; a missing column that must be there, or that was named, does.
package trace
