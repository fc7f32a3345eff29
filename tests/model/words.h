/* words.h - numbers that session.pml shares with the C code; rules_plan.c checks them. */

/* enum binding_decision */
#define WAIT 0
#define USE 1
#define NOTHING 2
#define VERIFY 3
#define REBUILD 4
#define CREATE 5
#define PAUSE 6
#define DELETE 7
#define REFUSED 8

/* enum binding_want_kind */
#define ENSURE 1
#define EXISTING 2
#define WANT_PAUSE 3
#define RESUME 4
#define WANT_DELETE 5
#define REAP 6
#define ADOPT 7
#define IDLE 8
#define FINISH 9
#define OBSERVE 10
#define STILL 11

/* enum plan_want */
#define TO_KILL 8

/* enum plan_step_kind */
#define DO_FAIL 0
#define DO_NOTHING 1
#define DO_KEEP 2
#define DO_CONDEMN 3
#define DO_DELETE 4
#define DO_LIST 5
#define DO_SETTLE 6
#define DO_GET 7
#define DO_GONE 8
#define DO_CONNECT 9
#define DO_ADOPT 10
#define DO_INTEND_CREATE 11
#define DO_CREATE 12
#define DO_INTEND_PAUSE 13
#define DO_PAUSE 14
#define DO_TOMBSTONE 15
#define DO_STILL 16
#define DO_REST 17
#define DO_REAPED 18
#define DO_NOTE 20
#define DO_STILL_OTHER 21
#define DO_TELL_OTHER 22

/* a sandbox of the model */
#define RUNS 1
#define SLEEPS 2
#define GONE 3

/* calls on their way: of A, B, the reaper, and one that nobody waits for any more */
#define SLOTS 4
