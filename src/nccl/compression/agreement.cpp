#include "nccl/compression/agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "comm/submit.hpp"
#include "core/run_together.hpp"
#include "nccl/extras.hpp"
#include "streams/streams.hpp"

namespace pith::nccl {

namespace {

// Keeps the first error; "in progress" counts only if there is no error.
class Outcome {
 public:
  void keep(const Error& error) {
    Error& kept = error.code() == Code::in_progress ? begun_ : error_;
    if (!kept) kept = error;
  }
  const Error& error() const { return error_ ? error_ : begun_; }

 private:
  Error error_;
  Error begun_;
};

// Calls that run in the background; the destructor waits for their end.
class Running {
 public:
  explicit Running(Request request) : engines_(request->engines), calls_(std::move(request)) {}
  bool done() const { return calls_.done(); }
  Error wait() const {
    drive_engines(engines_, [this] { return done(); });
    return calls_.error();
  }

 private:
  std::vector<Engine*> engines_;
  Background calls_;
};

// The calls of one communicator.
struct Poll {
  const Waiting* first;
  std::vector<const NcclCall*> calls;
  Compression::Ballot* ballot = nullptr;            // null: could not be opened
  bool waits = false;                               // host calls still wait for the vote
  std::vector<std::unique_ptr<Running>> running{};  // its calls that have started

  Compression& compression() const { return *first->extension->compression; }
  Communicator& communicator() const { return *first->communicator; }
};

bool is_on_stream(const NcclCall* call) { return call->stream != nullptr; }
bool are_on_streams(const Poll& poll) {
  return std::all_of(poll.calls.begin(), poll.calls.end(), is_on_stream);
}

std::vector<Poll> polls_of(std::span<const Waiting> calls) {
  std::vector<Poll> polls;
  for (const Waiting& one : calls) {
    if (one.there) continue;
    const auto same = [&](const Poll& poll) {
      return poll.first->communicator == one.communicator;
    };
    auto poll = std::find_if(polls.begin(), polls.end(), same);
    if (poll == polls.end()) poll = polls.insert(poll, Poll{&one, {}});
    poll->calls.push_back(&one.call);
  }
  return polls;
}

// Ranks that group their calls differently send votes of different lengths, or other calls at the
// same time. The digests detect this, but their message means nothing to the program.
Error explained(const Error& error, const std::string& here) {
  if (error.code() != Code::invalid_usage) return error;
  return {error.code(),
          fmt::format("{}. Under PITH_COMPRESS ranks vote before such sums, and must group the "
                      "calls of one communicator alike; {}",
                      error.message(), here),
          error.rank()};
}

// After the vote the other ranks have started the call, so a failure of this rank must revoke the
// communicator, unless a revocation caused it.
Error told_to_all(Communicator& communicator, const Error& error) {
  const bool news = error && error.code() != Code::in_progress && error.code() != Code::remote;
  if (news) communicator.abort();
  return error;
}
Error told_to_all(const Poll& poll, const Error& error) {
  return told_to_all(poll.communicator(), error);
}

Error open(Poll& poll, bool here) {
  const Expected<Compression::Ballot*> ballot = poll.compression().open(poll.calls, here);
  if (!ballot) return told_to_all(poll, ballot.error());
  poll.ballot = *ballot;
  return {};
}

// Called before and after the calls: those of a group start and end together.
void join_streams(const Poll& poll, Outcome& outcome) {
  std::vector<void*> streams;
  for (const NcclCall* call : poll.calls) {
    const bool known = std::find(streams.begin(), streams.end(), call->stream) != streams.end();
    if (is_on_stream(call) && !known) streams.push_back(call->stream);
  }
  outcome.keep(poll.communicator().streams().join(streams));
}

// All calls are made even after an error, since other ranks depend on them.
Error enqueue_all(const Poll& poll) {
  Outcome outcome;
  join_streams(poll, outcome);
  for (std::size_t i = 0; i < poll.calls.size(); ++i) {
    outcome.keep(told_to_all(poll, poll.compression().enqueue(*poll.ballot, i)));
  }
  join_streams(poll, outcome);
  return outcome.error();
}

// In a revoked communicator the vote may never end.
bool can_go_on(Compression& compression, Compression::Ballot& ballot,
               const Communicator& communicator) {
  return communicator.is_revoked() || compression.is_ready(ballot);
}

Error outcome_of(Compression& compression, Compression::Ballot& ballot,
                 Communicator& communicator) {
  const bool known = compression.is_ready(ballot);
  const Error error = known ? compression.error_of(ballot) : communicator.error();
  return explained(error,
                   fmt::format("this rank has voted on {} at once", Compression::size_of(ballot)));
}

void wait_for(Compression& compression, Compression::Ballot& ballot, Communicator& communicator) {
  if (can_go_on(compression, ballot, communicator)) return;
  Engine* const engine = &communicator.engine();
  drive_engines({&engine, 1}, [&] { return can_go_on(compression, ballot, communicator); });
}

// One sum of host memory, on the calling thread.
Error run_one(Compression& compression, Compression::Ballot& ballot, Communicator& communicator) {
  wait_for(compression, ballot, communicator);
  if (Error error = outcome_of(compression, ballot, communicator)) return error;
  Group calls;
  compression.add(ballot, 0, calls);
  return told_to_all(communicator, calls.run());
}

// blocking = 0: ncclCommGetAsyncError reports the end.
Error begin(const Poll& poll) {
  const Waiting& one = *poll.first;
  Background begun(
      [communicator = one.communicator, extension = one.extension, ballot = poll.ballot] {
        return run_one(*extension->compression, *ballot, *communicator);
      });
  const std::lock_guard lock(one.extension->guard);
  if (one.extension->closed) return {Code::remote, "the communicator was aborted meanwhile"};
  ours(one.call.comm)->begin(std::move(begun));
  return {Code::in_progress, "the call has begun"};
}

Expected<std::unique_ptr<Running>> start(Group& group) {
  Expected<Request> request = group.run_in_background();
  if (!request) return request.error();
  return std::make_unique<Running>(std::move(*request));
}

void start(Poll& poll, Group& group, Outcome& outcome) {
  if (group.empty()) return;
  Expected<std::unique_ptr<Running>> running = start(group);
  if (running) {
    poll.running.push_back(std::move(*running));
  } else {
    outcome.keep(told_to_all(poll, running.error()));
  }
}

// Makes the calls in order. Consecutive calls on host memory form one group.
void make(Poll& poll, Outcome& outcome) {
  poll.waits = false;
  if (Error error = outcome_of(poll.compression(), *poll.ballot, poll.communicator())) {
    return outcome.keep(error);
  }
  join_streams(poll, outcome);
  Group calls;
  for (std::size_t i = 0; i < poll.calls.size(); ++i) {
    if (!is_on_stream(poll.calls[i])) {
      poll.compression().add(*poll.ballot, i, calls);
      continue;
    }
    start(poll, calls, outcome);
    outcome.keep(told_to_all(poll, poll.compression().enqueue(*poll.ballot, i)));
  }
  start(poll, calls, outcome);
  join_streams(poll, outcome);
}

// If nothing else waits, this thread does all the work.
Error run_alone(Poll& poll) {
  const bool on_streams = are_on_streams(poll);
  const bool background = poll.first->in_background;
  if (Error error = open(poll, !on_streams && !background)) return error;
  if (on_streams) return enqueue_all(poll);
  if (background) {
    return told_to_all(poll, pith::without_throwing([&] { return begin(poll); }));
  }
  if (poll.calls.size() == 1) {
    return run_one(poll.compression(), *poll.ballot, poll.communicator());
  }
  wait_for(poll.compression(), *poll.ballot, poll.communicator());
  Outcome outcome;
  make(poll, outcome);
  for (const auto& running : poll.running) outcome.keep(told_to_all(poll, running->wait()));
  return outcome.error();
}

bool can_go_on(const Poll& poll) {
  return poll.waits && can_go_on(poll.compression(), *poll.ballot, poll.communicator());
}

// Makes each communicator's host calls as soon as its vote has ended.
void finish(std::vector<Poll>& polls, Outcome& outcome) {
  while (true) {
    std::vector<Engine*> engines;
    for (Poll& poll : polls) {
      if (can_go_on(poll)) make(poll, outcome);
      if (poll.waits) engines.push_back(&poll.communicator().engine());
    }
    if (engines.empty()) break;
    drive_engines(engines, [&] {
      return std::any_of(polls.begin(), polls.end(),
                         [](const Poll& one) { return can_go_on(one); });
    });
  }
  for (const Poll& poll : polls) {
    for (const auto& running : poll.running) outcome.keep(told_to_all(poll, running->wait()));
  }
}

Error issue_there(std::span<const Waiting> calls) {
  return extras()->fallback->in_group([&] {
    Error error;
    for (const Waiting& one : calls) {
      if (one.there && !error) error = one.there->issue(one.call, one.factor);
    }
    return error;
  });
}

bool goes_there(const Waiting& one) { return one.there != nullptr; }

}  // namespace

Error run_waiting(std::span<const Waiting> calls, Group* group) {
  std::vector<Poll> polls = polls_of(calls);
  const bool there = std::any_of(calls.begin(), calls.end(), goes_there);
  const bool others = group && !group->empty();
  if (!others && !there && polls.size() == 1) return run_alone(polls[0]);
  if (!others && polls.empty()) return issue_there(calls);
  Outcome outcome;
  std::unique_ptr<Running> rest;
  if (others && group->makes_communicators()) {
    outcome.keep(group->run());
    if (outcome.error() && outcome.error().code() != Code::in_progress) return outcome.error();
  } else if (others) {
    Expected<std::unique_ptr<Running>> started = start(*group);
    if (!started) return started.error();
    rest = std::move(*started);
  }
  for (Poll& poll : polls) {
    outcome.keep(open(poll, false));
    if (!poll.ballot) continue;
    poll.waits = !are_on_streams(poll);
    if (!poll.waits) outcome.keep(enqueue_all(poll));
  }
  if (there) outcome.keep(issue_there(calls));
  finish(polls, outcome);
  if (rest) {
    const Error error = rest->wait();
    outcome.keep(polls.empty() ? error : explained(error, "this rank has others in its group"));
  }
  return outcome.error();
}

}  // namespace pith::nccl
