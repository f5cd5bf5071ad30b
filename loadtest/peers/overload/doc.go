// Overload is the load test with failsafe-go's adaptive limiter among its systems, which is nobody's requirement who uses Headgate:
// go run -C loadtest/peers ./overload -scenario overload -compare failsafe.
package main
