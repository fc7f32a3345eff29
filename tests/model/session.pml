/* session.pml - one session's life, for SPIN: everybody who acts on it, everything that can go wrong.
 * How to run it: tests/model/run; what is run: runs.txt.
 *
 * The rules are not here. What Acquire, Commit, Abort, RenewLock and the turns decide and write is
 * asked of the C code of services/binding; what the holder of a lock does next of services/controlplane/
 * plan.c; what the backend lets through of the local adapter's rules (rules.h, linked into the
 * checker). This file says who calls whom when, and what must never be.
 *
 * Modelled
 *   A        a control plane that serves one turn: BeginTurn, resolves with its token, EndTurn
 *   B        a control plane that serves somebody else: ensure, existing, pause, resume, delete; a
 *            turn that begins and ends, and condemns what cannot be reached from outside any more
 *   REAPER   lists, asks for what it has evidence against, adopts what nobody owns; the idle policy
 *            (pause, kill, delete); looks at the bound one and writes down what its backend did to it;
 *            pauses what runs beside it; the recovery pass, which is its adoption while the epoch is missing
 *   Client   of the turn: renews, also late or after a loss; holds use tokens (a stream)
 *   Installer  flips the image, again, back
 *   Clock    locks, deadlines, youth and quarantine that run out
 *   Store    a replica that lags, a failover that forgets what no replica had, an emptied index
 *   Backend  creates, deletes and pauses take effect when they like, also after their caller gave
 *            up, crashed, or lost its lock; keyed and fenced (local), or neither; pauses, resumes and
 *            ends sandboxes by itself, or its operator does
 * A holder commits and calls step by step, and may crash, stall past its lease, or not be answered
 * between any two steps. A write is decided and written at once (a compare-and-set of a random
 * revision amounts to that); `split` has reading and writing of Acquire and of condemning apart.
 *
 * Bounds: three sandboxes, seven attempts, one turn and one use token at a time, one call on its way
 * for each holder and one that was given up; the numbers of rounds and of faults stand in runs.txt.
 *
 * Not modelled: more than one session, config or account (so neither ACCOUNT_CHANGED nor pins);
 * labels, endpoints, events, losses as they are told; which of several was bound last
 * (F17); carrying /workspace over; time in numbers (a deadline has passed or not; create_horizon and
 * call_horizon are kept exactly, and duplicate_grace outlasts a turn); lists that lag; a connect that
 * takes effect late (what runs is the safe state); two failovers at once, or one together with an
 * emptied index; Redis' own replication protocol.
 *
 * What is checked: the invariants of the design that concern one session, by their numbers.
 *   1 at most one sandbox is handed out at a time; where create is keyed none is made beside one
 *   2 no delete or pause is sent for, or lands on, what a live turn (delete: or use) names; nothing
 *     for which a delete was sent, or of a session that is being deleted, is handed out
 *   3 what is bound is given up only when it is gone
 *   5 fences never go back
 *   7 the reaper has evidence
 *   8 nothing is created, rebuilt or reaped in quarantine or while the index is lost
 * Where the backend is not fenced, 2 does not cover a pause that lands late, and where the store has
 * lost something, or the binding was just adopted, an explicit pause is not refused by a turn that
 * is not known again yet. */
#include "words.h"

#define A 0
#define B 1
#define REAPER 2
/* an answer of the backend */
#define OK 1
#define NOT_THERE 2
#define TOO_LOW 3
#define EXISTS 4

c_decl {
	\#include <stdlib.h>
	\#include <string.h>
	\#include "common/errors/errors.h"
	\#include "tests/model/rules.h"
}

/* ------------------------------------------------------------------------ the store */

c_state "union model_doc doc" "Global"
c_state "union model_doc kept" "Global"      /* what the replica has */
c_state "union model_doc snap[3]" "Global"   /* what was read, where reading and writing are apart */
c_state "union model_holder h[3]" "Global"   /* what each holder knows */
c_state "union model_beside b[3]" "Global"   /* and of what is beside the bound one */
byte rev, kept_rev, snap_rev[3], snap_stale[3];
bit snap_quarantine[3], snap_unsure[3];
bit unconfirmed[3];                          /* waits for the replica */
bit forgotten[3];                            /* and a failover came first */
bit epoch = 1;
bit quarantine;
bit unsure;                                  /* the turn may be forgotten */
byte rebuild_before = 1, generation = 1;     /* the config's image */
byte grants;                                 /* attempts so far */

/* ---------------------------------------------------------------------- the backend */

byte st[4], sgen[4], sattempt[4], sfence[4];
byte made;
byte key_s, key_fence;
bit key_deleted;
/* Calls on their way: of A, B, the reaper, and one that nobody waits for any more. */
byte call[SLOTS], call_s[SLOTS], call_fence[SLOTS], call_attempt[SLOTS], call_gen[SLOTS];
byte answer[3], answer_s[3];

/* What the world knows and the programs do not. */
bit gTurn;        /* A's client has a turn's token */
bit gLive;        /* and has kept its deadline */
byte gUse;        /* and uses this sandbox */
bit gCalled = 1;  /* and has called since the store forgot something */
bit gFrozen;      /* and was believed while a pause was on its way */
bit gStream;      /* a stream holds a use token */
byte gStreamUse;
bit gStreamCalled = 1;
byte gDead;       /* set of the sandboxes for which a delete was sent */
byte gHanded;     /* handed out last */
byte gFence;      /* highest fence granted */
byte nExpire, nCrash, nLate, nUnknown, nTurns, nFlips, nDeadlines, nHand;
byte slot, verdict, again, wrote;

c_code { \#include "tests/model/glue.h" }

/* An invariant by its number; what SPIN prints of a broken one names it. */
#define HOLDS(n, condition) assert(c_expr { invariant_##n } || (condition))

#define live(s) (st[s] == RUNS || st[s] == SLEEPS)
#define held(s) ((gLive && gUse == s) || (gStream && gStreamUse == s))
/* Neither a loss nor an adoption refuses an explicit pause: the turn may not be known (again). */
#define pausable(s) (!(gLive && gUse == s) || gFrozen || c_expr { cfg.failover || cfg.wipe })
/* What is paused beside the bound one is used by nobody, nor by a stream. */
#define stillable(s) (pausable(s) && (!(gStream && gStreamUse == s) || c_expr { cfg.failover || cfg.wipe }))
#define deleting (c_expr { now.doc.state != 1 })

/* ------------------------------------------------------------------------ backend */

inline reply(i, what, which)
{
	if
	:: i < 3 -> answer[i] = what; answer_s[i] = which
	:: else
	fi
}

inline forget_call(i)
{
	call[i] = 0; call_s[i] = 0; call_fence[i] = 0; call_attempt[i] = 0; call_gen[i] = 0
}

inline make(i)
{
	if
	:: made < 3 ->
		made++;
		st[made] = RUNS; sgen[made] = call_gen[i];
		sattempt[made] = call_attempt[i]; sfence[made] = call_fence[i];
		key_s = made; key_fence = call_fence[i]; key_deleted = 0;
		printf("  backend: sandbox %d is made, attempt %d, generation %d\n", made, sattempt[made], sgen[made]);
		/* 1: where create is keyed no second one exists; elsewhere none while the index stands */
		HOLDS(1, c_expr { cfg.twice || n_live () == 1 });
		reply(i, OK, made)
	:: else -> reply(i, TOO_LOW, 0)	/* no capacity: the bound of this model */
	fi
}

inline take_create(i)
{
	c_code { now.verdict = judge_create(now.slot); };
	if
	:: verdict == c_expr { MODEL_MAKE } || verdict == c_expr { MODEL_REPLACE } -> make(i)
	:: verdict == c_expr { MODEL_EXISTS } ->
		if :: call_fence[i] > key_fence -> key_fence = call_fence[i] :: else fi;
		reply(i, EXISTS, key_s)
	:: else ->
		printf("  backend: the create of attempt %d is refused\n", call_attempt[i]);
		reply(i, TOO_LOW, 0)
	fi
}

inline delete_now(i, which)
{
	printf("  backend: sandbox %d is deleted\n", which);
	/* 2: no delete lands on what a live turn or use names, but for the session's own */
	HOLDS(2, !held(which) || deleting);
	st[which] = GONE;
	if
	:: key_s == which ->
		key_deleted = 1;
		if :: sfence[which] > key_fence -> key_fence = sfence[which] :: else fi
	:: else
	fi;
	reply(i, OK, 0)
}

inline pause_now(i, which)
{
	printf("  backend: sandbox %d is paused\n", which);
	/* 2: nor does a pause land on what a live turn uses, where the backend is fenced */
	HOLDS(2, c_expr { !cfg.fenced } || pausable(which));
	st[which] = SLEEPS;
	sfence[which] = call_fence[i];
	reply(i, OK, 0)
}

/* A call takes effect. */
inline land(i)
{
	slot = i;
	if
	:: call[i] == CREATE -> take_create(i)
	:: call[i] != CREATE && !live(call_s[i]) -> reply(i, NOT_THERE, 0)
	:: call[i] != CREATE && live(call_s[i]) ->
		if
		:: c_expr { !fence_passes (now.call_s[now.slot], now.call_fence[now.slot]) } ->
			printf("  backend: fence %d is too low\n", call_fence[i]);
			reply(i, TOO_LOW, 0)
		:: else ->
			if
			:: call[i] == DELETE -> delete_now(i, call_s[i])
			:: call[i] == PAUSE -> pause_now(i, call_s[i])
			fi
		fi
	fi;
	forget_call(i);
	slot = 0; verdict = 0
}

active proctype Backend()
{
end:	do
	:: atomic { call[0] != 0 -> land(0) }
	:: atomic { call[1] != 0 -> land(1) }
	:: atomic { call[2] != 0 -> land(2) }
	:: atomic { call[3] != 0 -> land(3) }
	:: atomic { call[3] != 0 && c_expr { cfg.lost } -> forget_call(3) }
	od
}

/* ------------------------------------------- control planes and the reaper: the holder */

/* A write that must be durable waits for the replica. */
inline await()
{
	!unconfirmed[c];
	if
	:: forgotten[c] -> forgotten[c] = 0; r = c_expr { DENIED }
	:: !forgotten[c]
	:: !forgotten[c] && r == c_expr { DONE } && nUnknown < c_expr { cfg.unknown } ->
		nUnknown++; printf("%d: is not answered\n", c); r = c_expr { DENIED }
	fi
}

/* The call is not waited for any more: it goes on by itself. */
inline leave()
{
	if
	:: call[c] != 0 ->
		call[3] = call[c]; call_s[3] = call_s[c]; call_fence[3] = call_fence[c];
		call_attempt[3] = call_attempt[c]; call_gen[3] = call_gen[c];
		forget_call(c)
	:: else -> answer[c] = 0; answer_s[c] = 0
	fi
}

inline send(what)
{
	call[c] = what; call_s[c] = s;
	c_code {
		now.call_fence[PCP->c] = now.h[PCP->c].fence;
		now.call_attempt[PCP->c] = now.h[PCP->c].attempt;
		now.call_gen[PCP->c] = now.h[PCP->c].gen;
	}
}

/* Sandbox s is what the caller may use: decided now, told once that is durable. */
inline promise()
{
	/* 2: never one for which a delete was sent */
	HOLDS(2, !((gDead >> s) & 1));
	/* and none of a session that is being deleted */
	HOLDS(2, !deleting);
	/* 1: never a second one while the first is there */
	HOLDS(1, c_expr { cfg.twice } || gHanded == 0 || gHanded == s || st[gHanded] == GONE || ((gDead >> gHanded) & 1));
	gHanded = s
}

inline hand_out()
{
	printf("%d: is handed sandbox %d\n", c, s);
	if
	:: c == A && gLive -> gUse = s; gFrozen = 0
	:: else
	fi
}

/* A second one goes only after duplicate_grace, and a turn has resolved again by then. */
#define grace(s) (!held(s) || c_expr { !cfg.wipe })

#define sweeps c_expr { !(cfg.looks & 4) }
#define for_use (c != REAPER && (w == ENSURE || w == EXISTING || w == RESUME))

/* Committed, and the lock given back by it. */
inline finish()
{
	if
	:: for_use -> hand_out()
	:: else
	fi;
	c_code { forget(PCP->c); }
}

inline check_grant()
{
	printf("%d: wants %d, is granted %d with attempt %d\n", c, w, r, grants);
	/* 8: nothing is created, rebuilt or reaped in quarantine or while the index is lost */
	HOLDS(8, !(quarantine && (r == REBUILD || r == CREATE || w == REAP || w == IDLE || w == STILL)));
	HOLDS(8, epoch || w == ADOPT || (r == VERIFY && w != STILL) || w == WANT_PAUSE || w == WANT_DELETE || w == FINISH);
	/* 7: nothing is deleted on absence */
	HOLDS(7, w != REAP || k);
	/* 5: fences never go back */
	c_code { PCP->k = now.h[PCP->c].fence; };
	HOLDS(5, k > gFence);
	gFence = k
}

proctype CP(byte c)
{
	byte left, w, r, k, s, failed;

	c_code { PCP->left = PCP->c == 0 ? cfg.a : PCP->c == 1 ? cfg.b : cfg.r; };
next:	atomic {
		w = 0; r = 0; k = 0; s = 0; failed = 0;
		if
		:: left == 0 -> goto done
		:: left > 0 -> left--
		fi;
		if
		:: c == A && !gTurn && nTurns < c_expr { cfg.turns } && c_expr { now.doc.state == 1 } -> goto begin
		:: else
		fi
	};
choose:	atomic {
		if
		:: c == A -> w = ENSURE
		:: c == B && c_expr { cfg.inbound && now.doc.state == 1 } ->
			c_code { PCP->r = other_turn(PCP->c); };
			await();
			r = 0;
			goto next
		:: c == B && c_expr { cfg.wants & 1 << 1 } -> w = ENSURE
		:: c == B && c_expr { cfg.wants & 1 << 2 } -> w = EXISTING
		:: c == B && c_expr { cfg.wants & 1 << 3 } -> w = WANT_PAUSE
		:: c == B && c_expr { cfg.wants & 1 << 4 } -> w = RESUME
		:: c == B && c_expr { cfg.wants & 1 << 5 } -> w = WANT_DELETE
		:: c == REAPER && c_expr { now.doc.bound && (cfg.looks & 1) } -> w = OBSERVE; c_code { PCP->s = now.doc.bound; }
		:: c == REAPER && live(1) && c_expr { cfg.looks & 2 } -> w = STILL; s = 1
		:: c == REAPER && live(2) && c_expr { cfg.looks & 2 } -> w = STILL; s = 2
		:: c == REAPER && epoch && live(1) && grace(1) && sweeps -> w = REAP; s = 1
		:: c == REAPER && epoch && live(2) && grace(2) && sweeps -> w = REAP; s = 2
		:: c == REAPER && epoch && live(3) && grace(3) && sweeps -> w = REAP; s = 3
		/* found without a binding: adopted; after a loss only when no call of before can land */
		:: c == REAPER && c_expr { !now.doc.bound && n_live () > 0 } && sweeps &&
		   (epoch || c_expr { may_recover () }) -> w = ADOPT
		:: c == REAPER && epoch && c_expr { now.doc.bound && (cfg.idle & 1) } -> w = IDLE; c_code { PCP->s = now.doc.bound; }
		:: c == REAPER && epoch && c_expr { now.doc.bound && (cfg.idle & 2) } -> w = IDLE; k = 1; c_code { PCP->s = now.doc.bound; }
		:: c == REAPER && epoch && c_expr { (now.doc.bound || now.doc.state == 2) && (cfg.idle & 4) } -> w = FINISH; c_code { PCP->s = now.doc.bound; }
		:: c == REAPER && left == 0 -> goto done
		fi
	};
look:	if
	:: c_expr { !cfg.split }
	:: c_expr { cfg.split } -> c_code { now.doc = now.doc; read_all(PCP->c); }
	fi;
	atomic {
		grants < 7;
		c_code {
			struct acquired got = acquire(PCP->c, PCP->w, PCP->s, PCP->failed, PCP->k);

			now.again = got.again;
			now.wrote = got.wrote;
			PCP->r = got.decision;
			PCP->k = got.evidence;
			if (got.decision == USE)
				PCP->s = got.s;
			forget_read(PCP->c);
		};
		if
		:: again -> again = 0; k = 0; goto look
		:: else
		fi;
		if
		:: r == WAIT -> r = 0; c_expr { !now.doc.lock_live }; goto look
		:: r >= VERIFY && r < REFUSED -> check_grant()
		:: r == USE ->
			if
			/* Without a write it was true when it was read. */
			:: c_expr { cfg.split } && !wrote
			:: else -> promise()
			fi
		:: else
		fi;
		k = gLive;
		if
		:: c == A && gTurn && wrote -> gLive = 1; gCalled = 1
		:: else
		fi;
		wrote = 0;
		await();
		if
		:: r == c_expr { DENIED } && !k && c == A -> gLive = 0
		:: else
		fi;
		k = 0;
		if
		:: r == c_expr { DENIED } && c_expr { now.h[PCP->c].all == 0 } -> goto next
		:: r == USE && c_expr { now.h[PCP->c].all == 0 } ->
			hand_out();
			if
			:: st[s] != RUNS && failed == 0 -> failed = s; r = 0; goto look
			:: else -> goto next
			fi
		:: r == NOTHING || r >= REFUSED -> goto next
		:: else
		fi
	};

hold:	atomic {
		r = 0; s = 0;
		if
		:: c_expr { !now.h[PCP->c].believed } -> goto giveup
		:: nCrash < c_expr { cfg.crash } -> nCrash++; printf("%d: crashes\n", c); c_code { forget(PCP->c); }; goto next
		:: true
		fi;
		c_code {
			union model_step step = plan(PCP->c);

			PCP->k = step.kind;
			PCP->s = step.kind == DO_SETTLE ? step.attempt : step.s;
		};
		if
		:: c_expr { now.h[PCP->c].doomed && !now.h[PCP->c].condemned } -> goto giveup
		:: else
		fi;
		printf("%d: step %d on %d\n", c, k, s);
		if
		/* Nothing is sent by who does not believe in the lock any more. */
		:: (k == DO_DELETE || k == DO_PAUSE || k == DO_STILL || k == DO_CREATE || k == DO_CONNECT || k == DO_ADOPT ||
		    (k == DO_STILL_OTHER && c_expr { !cfg.send_unbelieved })) && c_expr { !now.h[PCP->c].believed } -> goto giveup
		:: else
		fi;
		if
		:: k == DO_FAIL || k == DO_NOTHING || k == DO_REAPED -> goto giveup
		:: k == DO_KEEP -> goto patch
		:: k == DO_CONDEMN && c_expr { cfg.split } -> c_code { now.doc = now.doc; read_all(PCP->c); }; goto condemn
		:: k == DO_CONDEMN && c_expr { !cfg.split } -> goto condemn
		:: k == DO_DELETE ->
			if
			:: c_expr { cfg.wipe && cfg.fenced }	/* somebody from before the loss: fenced off */
			:: else ->
				/* 2: none is sent for what a live turn or use names, but for the session's own */
				HOLDS(2, !held(s) || !live(s) || deleting);
				gDead = gDead | (1 << s)
			fi;
			send(DELETE)
		:: k == DO_LIST ->
			c_code { look_around(PCP->c); };
			goto hold
		:: k == DO_SETTLE ->
			c_code { PCP->r = commit_settled(PCP->c, PCP->s); };
			await();
			if :: r -> goto giveup :: else -> goto hold fi
		:: k == DO_GET ->
			if
			:: true -> c_code { now.h[PCP->c].seen = now.st[PCP->s] == RUNS ? 1 : now.st[PCP->s] == SLEEPS ? 2 : 5; }
			:: c_expr { cfg.lie } ->	/* a bare 404: somebody on the way does not know it */
				if
				:: c_expr { cfg.bare_404 } -> c_code { now.h[PCP->c].seen = 5; }
				:: else -> goto giveup
				fi
			fi;
			goto hold
		:: k == DO_GONE -> goto gone
		:: k == DO_ADOPT && c_expr { cfg.delete_others && now.h[PCP->c].found != 1 << PCP->s } ->
			c_code { PCP->r = commit_intend(PCP->c, 2, __builtin_ctz(now.h[PCP->c].found & ~(1 << PCP->s))); };
			if :: r -> goto giveup :: else -> goto hold fi
		:: k == DO_CONNECT || (k == DO_ADOPT && c_expr { !cfg.delete_others || now.h[PCP->c].found == 1 << PCP->s }) -> goto connect
		:: k == DO_INTEND_CREATE ->
			c_code { PCP->r = commit_intend(PCP->c, 1, 0); };
			await();
			if :: r -> goto giveup :: else -> goto hold fi
		:: k == DO_CREATE ->
			/* 7: who adopts creates nothing */
			HOLDS(7, w == ENSURE);
			if
			:: epoch || c_expr { cfg.no_epoch } -> c_code { now.h[PCP->c].sent = 1; }; send(CREATE)
			:: else -> goto giveup
			fi
		:: k == DO_INTEND_PAUSE ->
			c_code { PCP->r = commit_intend(PCP->c, 3, PCP->s); };
			await();
			if :: r -> goto giveup :: else -> goto hold fi
		:: k == DO_STILL && c_expr { now.h[PCP->c].paused } -> goto still
		:: k == DO_REST || k == DO_NOTE -> goto patch
		:: k == DO_TELL_OTHER -> c_code { PCP->s = now.h[PCP->c].bound; }; goto patch
		:: k == DO_STILL_OTHER ->
			/* 2: nor one for what is not bound, as far as anybody knows that it is used */
			HOLDS(2, stillable(s) || !live(s));
			send(PAUSE)
		:: k == DO_PAUSE || (k == DO_STILL && c_expr { !now.h[PCP->c].paused }) ->
			/* 2: no pause is sent for what a live turn names */
			HOLDS(2, pausable(s));
			send(PAUSE)
		:: k == DO_TOMBSTONE ->
			c_code { PCP->r = commit_tombstone(PCP->c); };
			await();
			if :: r -> goto giveup :: else fi;
			printf("%d: the session is deleted\n", c);
			gTurn = 0; gLive = 0; gUse = 0; gFrozen = 0; gStream = 0; gStreamUse = 0; gHanded = 0;
			c_code { forget(PCP->c); };
			goto next
		fi
	};

	if
	:: atomic {
		answer[c] != 0 ->
		r = answer[c];
		if :: k == DO_CREATE -> s = answer_s[c] :: else fi;
		answer[c] = 0; answer_s[c] = 0;
		if
		:: k == DO_DELETE && r != TOO_LOW -> r = 0; goto gone
		:: k == DO_PAUSE && r == OK -> r = 0; goto patch
		:: k == DO_STILL && r == OK -> goto still
		:: (k == DO_PAUSE || k == DO_STILL) && r == NOT_THERE -> c_code { now.h[PCP->c].seen = 5; }; goto hold
		:: k == DO_STILL_OTHER && r == NOT_THERE && w != STILL -> c_code { model_note_gone(&now.h[PCP->c], PCP->s); }; goto hold
		/* One beside an adoption is paused if that is possible, and not waited for. */
		:: k == DO_STILL_OTHER && (r == OK || (r == TOO_LOW && w != STILL)) -> c_code { now.b[PCP->c].stilled |= 1 << PCP->s; }; goto hold
		:: k == DO_STILL_OTHER && r != OK && w == STILL -> goto giveup
		:: k == DO_CREATE && r == OK -> r = 0; goto bind
		:: k == DO_CREATE && r == EXISTS ->
			c_code {
				now.h[PCP->c].sent = 0;
				now.h[PCP->c].must_list = 1;
				now.h[PCP->c].listed = 0;
				now.h[PCP->c].found = 0;
				now.h[PCP->c].exists++;
			};
			if :: c_expr { now.h[PCP->c].exists == 3 } -> goto giveup :: else -> goto hold fi
		:: k == DO_CREATE && r == TOO_LOW -> c_code { now.h[PCP->c].sent = 0; }; goto giveup
		:: k != DO_CREATE && k != DO_STILL_OTHER && r == TOO_LOW -> goto giveup
		fi }
	:: atomic {
		nLate < c_expr { cfg.late } && call[3] == 0 ->
		nLate++; printf("%d: gives up waiting\n", c);
		leave(); goto giveup }
	:: atomic {
		nCrash < c_expr { cfg.crash } && call[3] == 0 ->
		nCrash++; printf("%d: crashes\n", c);
		leave(); c_code { forget(PCP->c); }; goto next }
	fi;

	/* Whether somebody got through before the pause, the backend knows. */
still:	atomic {
		r = 0;
		if
		:: !live(s) -> c_code { now.h[PCP->c].seen = 5; }
		:: live(s)
		:: live(s) -> c_code { now.h[PCP->c].used = 1; }
		fi;
		c_code { now.h[PCP->c].stilled = 1; };
		goto hold
	};

condemn: atomic {
		c_code { PCP->r = commit_intend(PCP->c, 2, PCP->s); forget_read(PCP->c); };
		await();
		if
		:: r == c_expr { CONFLICT } && c_expr { now.h[PCP->c].want == TO_KILL } ->
			c_code { now.h[PCP->c].used = 1; };
			goto hold
		:: r == c_expr { CONFLICT } && c_expr { now.h[PCP->c].want != TO_KILL } -> goto giveup
		:: r == c_expr { DONE } -> goto hold
		:: r != c_expr { DONE } && r != c_expr { CONFLICT } -> goto giveup
		fi
	};

gone:	atomic {
		if
		:: c_expr { now.doc.bound == PCP->s } -> k = st[s]
		:: else -> k = GONE
		fi;
		c_code { PCP->r = commit_gone(PCP->c, PCP->s); };
		/* 3: what is bound is given up only when it is proven gone */
		HOLDS(3, r != c_expr { DONE } || k == GONE);
		k = 0;
		await();
		if :: r -> goto giveup :: else -> goto hold fi
	};

	/* What runs is the safe state: a late connect does no harm, so it is not modelled. */
connect: atomic {
		if
		:: !live(s) ->
			if
			:: k == DO_CONNECT -> c_code { now.h[PCP->c].seen = 5; }
			:: else -> c_code { model_note_gone(&now.h[PCP->c], PCP->s); }
			fi;
			goto hold
		:: live(s) && c_expr { !fence_passes (PCP->s, now.h[PCP->c].fence) } -> goto giveup
		:: live(s) && c_expr { fence_passes (PCP->s, now.h[PCP->c].fence) } ->
			st[s] = RUNS;
			c_code { now.sfence[PCP->s] = now.h[PCP->c].fence; }
		fi;
		if :: k == DO_ADOPT -> goto bind :: else -> goto patch fi
	};

patch:	atomic {
		c_code { PCP->r = commit_patch(PCP->c, PCP->s, patch_power(PCP->c, PCP->k)); };
		if :: r == c_expr { DONE } && for_use -> promise() :: else fi;
		await();
		if :: r -> goto giveup :: else -> finish(); goto next fi
	};

bind:	atomic {
		c_code { PCP->r = commit_bind(PCP->c, PCP->s, PCP->k == DO_ADOPT); };
		if :: r == c_expr { DONE } && for_use -> promise() :: else fi;
		await();
		if
		:: r == c_expr { DOOMED } -> goto hold
		:: r == c_expr { LOST } || r == c_expr { DENIED } || r == c_expr { CONFLICT } -> goto giveup
		:: r == c_expr { DONE } -> finish(); goto next
		fi
	};

giveup:	atomic {
		if
		:: true -> c_code { release(PCP->c); }
		:: nCrash < c_expr { cfg.crash } -> nCrash++; c_code { forget(PCP->c); }
		fi;
		r = 0;
		!unconfirmed[c];
		forgotten[c] = 0;
		goto next
	};

begin:	atomic {
		nTurns++;
		c_code { PCP->r = turn_op(MODEL_BEGIN_TURN, 0); };
		if
		:: r ->
			r = 0;
			await();
			if
			:: r == 0 -> printf("0: the turn begins\n"); gTurn = 1; gLive = 1; gUse = 0; gFrozen = 0; gCalled = 1
			:: else -> r = 0
			fi
		:: else
		fi;
		goto choose
	};

done:	atomic {
		if
		:: c == A && gTurn ->
			c_code { (void)turn_op(MODEL_END_TURN, 0); };
			printf("0: the turn ends\n");
			gTurn = 0; gLive = 0; gUse = 0; gFrozen = 0
		:: else
		fi
	}
}

/* ------------------------------------------------------------------- time and the rest */

active proctype Clock()
{
end:	do
	/* A lock is believed in for less time than it lasts. */
	:: atomic { c_expr { lock_left_alone () } -> c_code { now.doc.lock_live = 0; } }
	:: atomic { nExpire < c_expr { cfg.expire } && c_expr { now.h[0].believed } -> nExpire++; c_code { now.h[0].believed = 0; } }
	:: atomic { nExpire < c_expr { cfg.expire } && c_expr { now.h[1].believed } -> nExpire++; c_code { now.h[1].believed = 0; } }
	:: atomic { nExpire < c_expr { cfg.expire } && c_expr { now.h[2].believed } -> nExpire++; c_code { now.h[2].believed = 0; } }
	:: atomic { c_expr { now.doc.young && called () } -> c_code { now.doc.young = 0; now.kept.young = 0; } }
	:: atomic { quarantine && c_expr { holders_known () } -> quarantine = 0 }
	:: atomic { unsure && !quarantine && c_expr { called () } -> unsure = 0 }
	/* The turn's deadline passes; its client may come late. */
	:: atomic {
		nDeadlines < c_expr { cfg.renew } && gLive ->
		nDeadlines++; gLive = 0; printf("0: the turn's deadline passes\n");
		c_code { now.doc.turn_live = 0; now.kept.turn_live = 0; } }
	od
}

active proctype Client()
{
	bit r;
end:	do
	:: atomic {
		gTurn && ((c_expr { cfg.renew } && !gLive) || !gCalled) ->
		c_code { PClient->r = turn_op(MODEL_RENEW_TURN, 0); };
		if
		:: r -> gLive = 1; gCalled = 1; gFrozen = c_expr { now.doc.power == 2 }; r = 0; printf("0: the turn is renewed\n")
		:: else
		fi }
	:: atomic {
		c_expr { cfg.use } && gUse != 0 && (!gStream || !gStreamCalled) ->
		c_code { PClient->r = turn_op(MODEL_RENEW_USE, now.gUse); };
		if
		:: r -> gStream = 1; gStreamUse = gUse; gStreamCalled = 1; r = 0; printf("0: a stream runs in %d\n", gUse)
		:: else -> gStream = 0; gStreamUse = 0
		fi }
	:: atomic {
		gStream && gStreamCalled ->
		c_code { (void)turn_op(MODEL_END_USE, now.gStreamUse); };
		gStream = 0; gStreamUse = 0 }
	od
}

active proctype Installer()
{
end:	do
	:: atomic {
		nFlips < c_expr { cfg.flips } ->
		nFlips++;
		if
		:: nFlips == c_expr { cfg.flips } && c_expr { cfg.back } -> generation = 1; rebuild_before = 1
		:: else -> generation++; rebuild_before = generation
		fi;
		printf("installer: flips to generation %d\n", generation) }
	od
}

active proctype Store()
{
	bit over;
end:	do
	:: atomic { unconfirmed[0] || unconfirmed[1] || unconfirmed[2] ->
		unconfirmed[0] = 0; unconfirmed[1] = 0; unconfirmed[2] = 0;
		c_code { now.kept = now.doc; now.kept_rev = now.rev; } }
	:: atomic {
		c_expr { cfg.failover } && !over ->
		over = 1;
		printf("store: fails over\n");
		forgotten[0] = unconfirmed[0]; forgotten[1] = unconfirmed[1]; forgotten[2] = unconfirmed[2];
		unconfirmed[0] = 0; unconfirmed[1] = 0; unconfirmed[2] = 0;
		c_code {
			now.doc = now.kept;
			now.rev = cfg.counter ? now.kept_rev : now.rev + cfg.split;
		};
		quarantine = 1; unsure = 1; gCalled = 0; gStreamCalled = 0 }
	/* A holder whose lock was forgotten has it renewed. */
	:: atomic { quarantine && c_expr { renewable (0) } -> c_code { renew_lock(0); now.slot = 0; } }
	:: atomic { quarantine && c_expr { renewable (1) } -> c_code { renew_lock(1); now.slot = 0; } }
	:: atomic { quarantine && c_expr { renewable (2) } -> c_code { renew_lock(2); now.slot = 0; } }
	:: atomic {
		c_expr { cfg.wipe } && !over ->
		over = 1;
		printf("store: is empty\n");
		c_code { now.doc.all = 0; now.kept.all = 0; };
		epoch = 0; gCalled = 0; gStreamCalled = 0; gDead = 0 }
	/* The recovery pass has adopted what there is. */
	:: atomic {
		!epoch && c_expr { now.doc.bound || n_live () == 0 } &&
		c_expr { may_recover () } ->
		epoch = 1; printf("store: the index is whole again\n") }
	/* A sandbox dies by itself. */
	:: atomic { c_expr { cfg.dies == 1 } && !over && st[1] == RUNS -> over = 1; st[1] = GONE; printf("  backend: sandbox 1 dies\n") }
	:: atomic { c_expr { cfg.dies == 2 } && !over && st[2] == RUNS -> over = 1; st[2] = GONE; printf("  backend: sandbox 2 dies\n") }
	/* Or somebody pauses, resumes or ends it by hand. */
	:: atomic { nHand < c_expr { cfg.hand } && st[1] == RUNS -> nHand++; st[1] = SLEEPS; printf("  backend: sandbox 1 is paused by hand\n") }
	:: atomic { nHand < c_expr { cfg.hand } && st[1] == SLEEPS -> nHand++; st[1] = RUNS; printf("  backend: sandbox 1 is resumed by hand\n") }
	:: atomic { nHand < c_expr { cfg.hand } && live(1) -> nHand++; st[1] = GONE; printf("  backend: sandbox 1 is ended by hand\n") }
	od
}

init {
	atomic {
		c_code { read_config(); };
		if
		:: c_expr { cfg.start == 0 }
		:: c_expr { cfg.start == 1 } -> c_code { now.doc.state = 1; }
		:: c_expr { cfg.start == 2 } ->
			c_code {
				now.doc.state = 1;
				now.doc.bound = now.doc.gen = now.doc.power = 1;
				now.doc.fence = now.gFence = 1;
			};
			made = 1; st[1] = RUNS; sgen[1] = 1; sattempt[1] = 1; sfence[1] = 1; grants = 1; gHanded = 1;
			key_s = 1; key_fence = 1
		:: c_expr { cfg.start == 3 } ->
			c_code {
				now.doc.state = 1;
				now.doc.bound = 2;
				now.doc.gen = now.doc.power = 1;
				now.doc.fence = now.gFence = 2;
			};
			made = 2; grants = 2; gHanded = 2;
			st[1] = RUNS; sgen[1] = 1; sattempt[1] = 1; sfence[1] = 1;
			st[2] = RUNS; sgen[2] = 1; sattempt[2] = 2; sfence[2] = 2
		:: c_expr { cfg.start == 4 } ->
			c_code { now.doc.state = 1; now.doc.fence = now.gFence = 2; };
			made = 2; grants = 2;
			st[1] = RUNS; sgen[1] = 1; sattempt[1] = 1; sfence[1] = 1;
			st[2] = RUNS; sgen[2] = 1; sattempt[2] = 2; sfence[2] = 2
		fi;
		c_code { now.kept = now.doc; };
		run CP(A);
		run CP(B);
		run CP(REAPER)
	}
}
