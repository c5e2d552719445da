#include "nccl/agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "api/submit.hpp"
#include "nccl/extras.hpp"

namespace pith::nccl {

namespace {

using api::Background;
using api::Group;

// The first error; that something has begun in the background is none.
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

// Calls in the background; waits for their end before it goes.
class Running {
 public:
  explicit Running(api::Request request) : engines_(request->engines), calls_(std::move(request)) {}
  std::span<Engine* const> engines() const { return engines_; }
  bool done() const { return calls_.done(); }
  Error wait() const {
    drive_engines(engines_, [this] { return done(); });
    return calls_.error();
  }

 private:
  std::vector<Engine*> engines_;
  Background calls_;
};

// Of the calls of one communicator.
struct Poll {
  const Waiting* first;
  std::vector<const NcclCall*> calls;
  Compression::Ballot ballot;
  std::unique_ptr<Running> running;  // the vote, then the calls
  bool counted = false;              // the vote has ended

  Compression& compression() const { return *first->extension->compression; }
};

std::vector<Poll> polls_of(std::span<const Waiting> calls) {
  std::vector<Poll> polls;
  for (const Waiting& one : calls) {
    if (one.there) continue;
    const auto same = [&](const Poll& poll) {
      return poll.first->communicator == one.communicator;
    };
    auto poll = std::find_if(polls.begin(), polls.end(), same);
    if (poll == polls.end()) poll = polls.insert(poll, Poll{&one, {}, {}, nullptr});
    poll->calls.push_back(&one.call);
  }
  return polls;
}

void add_vote(Poll& poll, Group& group) {
  for (const NcclCall* call : poll.calls) poll.compression().vote(*call, poll.ballot);
  poll.ballot.close();
  CollectiveArgs args;
  args.collective = Collective::allreduce;
  args.send = args.recv = api::bytes_at(poll.ballot.votes.data());
  args.count = poll.ballot.votes.size();
  args.type = DType::i64;
  args.op = Op::min;
  group.add(poll.first->communicator, args, nullptr);
}

// Ranks that have grouped their calls in other ways make votes of other lengths, or other calls at
// their time, which the digests tell: in words that mean nothing to the program.
Error explained(const Error& error, const std::string& here) {
  if (error.code() != Code::invalid_usage) return error;
  return {error.code(),
          fmt::format("{}. Under PITH_COMPRESS ranks vote before such sums, and must group the "
                      "calls of one communicator alike; {}",
                      error.message(), here),
          error.rank()};
}

// What was agreed and cannot be made here: the others are in it already. Of what has revoked the
// communicator they have heard.
Error told_to_all(const Poll& poll, const Error& error) {
  const bool news = error && error.code() != Code::in_progress && error.code() != Code::remote;
  if (news) poll.first->communicator->abort();
  return error;
}

// What follows the vote. A rank that cannot make what was agreed must not leave the others waiting.
Error count(Poll& poll, const Error& of_vote, Group& group) {
  poll.counted = true;
  if (of_vote) {
    poll.compression().give_up();
    return explained(of_vote, fmt::format("this rank has voted on {} at once", poll.calls.size()));
  }
  poll.compression().settle(poll.ballot);
  for (std::size_t i = 0; i < poll.calls.size(); ++i) {
    const Error error = poll.compression().add(*poll.calls[i], poll.ballot.places[i],
                                               poll.first->communicator, group);
    if (!error) continue;
    static_cast<void>(group.discard());
    return told_to_all(poll, error);
  }
  return {};
}

// blocking = 0: ncclCommGetAsyncError tells the end.
Error begin(const Waiting& one, Group& group) {
  Expected<api::Request> calls = group.run_in_background();
  if (!calls) return calls.error();
  Background begun(std::move(*calls));
  const std::lock_guard lock(one.extension->guard);
  if (one.extension->closed) return {Code::remote, "the communicator was aborted meanwhile"};
  ours(one.call.comm)->begin(std::move(begun));
  return {Code::in_progress, "the call has begun"};
}

// Nothing else waits: this thread does all of it.
Error run_alone(Poll& poll) {
  Group vote;
  add_vote(poll, vote);
  Group calls;
  if (Error error = count(poll, vote.run(), calls)) return error;
  return told_to_all(poll, poll.first->in_background ? begin(*poll.first, calls) : calls.run());
}

Expected<std::unique_ptr<Running>> start(Group& group) {
  Expected<api::Request> request = group.run_in_background();
  if (!request) return request.error();
  return std::make_unique<Running>(std::move(*request));
}

void start(Poll& poll, Group& group, Outcome& outcome) {
  Expected<std::unique_ptr<Running>> running = start(group);
  if (running) {
    poll.running = std::move(*running);
    return;
  }
  outcome.keep(told_to_all(poll, running.error()));
}

// A vote, or the calls after it, have ended.
void go_on(Poll& poll, Outcome& outcome) {
  const Error error = std::exchange(poll.running, nullptr)->wait();
  if (poll.counted) return outcome.keep(told_to_all(poll, error));
  Group calls;
  if (const Error refused = count(poll, error, calls)) return outcome.keep(refused);
  start(poll, calls, outcome);
}

bool can_go_on(const Poll& poll) { return poll.running && poll.running->done(); }

void finish(std::vector<Poll>& polls, Outcome& outcome) {
  while (true) {
    std::vector<Engine*> engines;
    for (Poll& poll : polls) {
      if (can_go_on(poll)) go_on(poll, outcome);
      if (!poll.running) continue;
      const auto own = poll.running->engines();
      engines.insert(engines.end(), own.begin(), own.end());
    }
    if (std::none_of(polls.begin(), polls.end(),
                     [](const Poll& one) { return one.running != nullptr; })) {
      return;
    }
    drive_engines(engines, [&] { return std::any_of(polls.begin(), polls.end(), can_go_on); });
  }
}

Error issue_there(std::span<const Waiting> calls) {
  const Fallback& library = *extras()->fallback;
  const auto error_of = [&](ncclResult_t result) {
    return result == ncclSuccess
               ? Error()
               : Error(static_cast<Code>(result), library.ncclGetLastError(nullptr));
  };
  Error error = error_of(library.ncclGroupStart());
  for (const Waiting& one : calls) {
    if (!one.there || error) continue;
    ncclComm_t const comm = one.there->get();
    error = comm ? error_of(library.issue(one.call, one.factor, comm))
                 : Error(Code::invalid_usage, "comm is revoked, expected one that takes calls");
  }
  const Error ended = error_of(library.ncclGroupEnd());
  return error ? error : ended;
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
    Group vote;
    add_vote(poll, vote);
    start(poll, vote, outcome);
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
