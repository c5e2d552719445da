#include "comm/group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "core/run_together.hpp"
#include "streams/stream_memory.hpp"
#include "streams/streams.hpp"

namespace pith {

bool are_one_exchange(const Compressor& one, const Compressor& other) {
  Spec given = other.spec();
  if (given.adapts()) take_form(given, one.spec().form, one.spec().density);
  return one.step == other.step && one.spec() == given;
}

Group& Group::of_this_thread() {
  static thread_local Group group;
  return group;
}

Expected<bool> Group::end(const char* function) {
  if (depth_ == 0) {
    return Error(Code::invalid_usage, fmt::format("{} without pithGroupStart", function));
  }
  if (process_ != fork_generation()) {
    depth_ = 0;
    clear();
    return Error(Code::invalid_usage,
                 fmt::format("{}: the group was begun before this process was forked, expected "
                             "pithGroupStart in this process",
                             function));
  }
  return --depth_ == 0;
}

void Group::start() {
  if (process_ != fork_generation()) {  // what the parent has collected is not called here
    depth_ = 0;
    clear();
    process_ = fork_generation();
  }
  ++depth_;
}

void Group::add(std::shared_ptr<Communicator> communicator, const CallArgs& args, void* stream) {
  collectives_.push_back({std::move(communicator), args, stream, nullptr});
  auto* const dense = std::get_if<CollectiveArgs>(&collectives_.back().args);
  if (dense && dense->uneven.used()) dense->uneven = copied_to(blocks_.add(), dense->uneven);
}

void Group::add(std::shared_ptr<Communicator> communicator, const Message& message, void* stream) {
  const auto same = [&](const MessageBatch& batch) {
    return batch.communicator == communicator && batch.stream == stream;
  };
  const auto found = std::find_if(batches_.begin(), batches_.end(), same);
  const bool first = found == batches_.end();
  MessageBatch& batch = first ? batches_.add() : *found;
  if (first) {
    batch.communicator = std::move(communicator);
    batch.stream = stream;
  }
  batch.messages.push_back(message);
}

// Compressed calls of one step become one call with several tensors: many small ones cost one
// exchange.
void Group::add(std::shared_ptr<Communicator> communicator, std::shared_ptr<Compressor> compressor,
                const CompressedTensor& tensor, void* stream) {
  const auto same = [&](const CompressedBatch& batch) {
    return batch.communicator == communicator && batch.stream == stream &&
           are_one_exchange(*batch.compressors[0], *compressor);
  };
  const auto found = std::find_if(compressed_.begin(), compressed_.end(), same);
  const bool first = found == compressed_.end();
  CompressedBatch& batch = first ? compressed_.add() : *found;
  if (first) {
    batch.communicator = communicator;
    batch.stream = stream;
    batch.place = collectives_.size();
    add(std::move(communicator), CollectiveArgs(), stream);
  }
  batch.tensors.push_back(tensor);
  batch.compressors.push_back(std::move(compressor));
}

bool Group::has(const Compressor& compressor) const {
  return std::any_of(compressed_.begin(), compressed_.end(), [&](const CompressedBatch& batch) {
    return std::any_of(batch.compressors.begin(), batch.compressors.end(),
                       [&](const auto& one) { return one.get() == &compressor; });
  });
}

bool Group::has(const Communicator& communicator) const {
  const auto is_its = [&](const auto& one) { return one.communicator.get() == &communicator; };
  return std::any_of(collectives_.begin(), collectives_.end(), is_its) ||
         std::any_of(batches_.begin(), batches_.end(), is_its) ||
         std::any_of(setups_.begin(), setups_.end(),
                     [&](const Chain& chain) { return chain.parent == &communicator; });
}

// Runs while the group can still be refused, since accumulators take most of the memory.
// Compressors of calls on streams are shaped later, when it is known on which memory they run.
Error Group::shape_compressed() {
  return without_throwing([this]() -> Error {
    for (const CompressedBatch& batch : compressed_) {
      if (batch.stream) continue;
      if (Error error = batch.communicator->compressors().check(batch.tensors)) return error;
    }
    for (CompressedBatch& batch : compressed_) {
      if (batch.stream) continue;
      for (const CompressedTensor& tensor : batch.tensors) {
        if (Error error = tensor.compressor->move_to(nullptr)) return error;
        tensor.compressor->shape(tensor.count, tensor.type);
      }
    }
    return {};
  });
}

// Called when the calls are about to be issued. Those on streams may still be refused, so their
// compressors are not bound here.
void Group::place_compressed() {
  for (CompressedBatch& batch : compressed_) {
    collectives_[batch.place].args = CompressedArgs{batch.tensors};
    collectives_[batch.place].compressed = &batch;
    if (batch.stream) continue;
    BoundCompressors& bound = batch.communicator->compressors();
    for (const auto& compressor : batch.compressors) bound.bind(compressor);
  }
}

Error Group::check_messages() const {
  for (const MessageBatch& batch : batches_) {
    if (Error error = check_own(batch.messages, batch.communicator->rank())) return error;
  }
  return {};
}

// Either all streams of a group are in one capture, or none is: a replay would otherwise run only a
// part of what the other ranks take for one group. Errors of the driver are left to the call, which
// gets the same ones.
Error Group::check_captures() {
  if (collectives_.size() < 2 && batches_.empty()) return {};
  const Communicator* last = nullptr;
  void* stream = nullptr;  // the last one queried
  std::optional<std::uint64_t> capture;
  const auto differs = [&](const Communicator* communicator, const CallArgs& args,
                           void* its) -> Error {
    if (!its || (its == stream && communicator == last)) return {};
    const auto found = capture_of(args, its);
    if (!found) return {};
    const bool first = !stream;
    void* const other = std::exchange(stream, its);
    last = communicator;
    if (first) capture = *found;
    if (*found == capture) return {};
    const auto words = [](bool captured) { return captured ? "is captured" : "is not captured"; };
    return {Code::invalid_usage,
            fmt::format("stream {} {} and stream {} {}{}, expected all streams of a group in one "
                        "capture, or none",
                        other, words(capture.has_value()), its, words(found->has_value()),
                        *found && capture ? " by another capture" : "")};
  };
  for (const Collected& one : collectives_) {
    if (Error error = differs(one.communicator.get(), one.args, one.stream)) return error;
  }
  for (MessageBatch& batch : batches_) {
    const PairArgs args{batch.messages};
    if (Error error = differs(batch.communicator.get(), args, batch.stream)) return error;
  }
  return {};
}

// Messages go behind all collectives: on a stream, one rank's message must not delay a collective
// that its peer issues before its own side of the message.
void Group::add_messages() {
  for (MessageBatch& batch : batches_) {
    add(batch.communicator, PairArgs{batch.messages}, batch.stream);
  }
}

void Group::clear() {
  collectives_.clear();
  blocks_.clear();
  batches_.clear();
  for (const CompressedBatch& batch : compressed_) {
    for (const auto& compressor : batch.compressors) compressor->release();
  }
  compressed_.clear();
  for (const Chain& chain : setups_) {
    for (const Setup& setup : chain.setups) {
      if (setup.undo) setup.undo();
    }
  }
  setups_.clear();
  error_ = Error();
}

Expected<std::vector<Group::Planned>> Group::discard() {
  Error error = error_;
  std::vector<Planned> planned;
  planned.reserve(collectives_.size() + batches_.size());
  for (const Collected& one : collectives_) {
    planned.push_back({one.communicator, std::get<CollectiveArgs>(one.args), 0});
  }
  for (const MessageBatch& batch : batches_) {
    std::size_t bytes = 0;
    for (const Message& message : batch.messages) bytes += message.data.size;
    planned.push_back({batch.communicator, {}, bytes});
  }
  clear();
  if (error) return error;
  return planned;
}

void Group::add(std::function<Error()> setup, const Communicator* parent,
                std::function<void()> undo) {
  const auto same = [&](const Chain& chain) { return parent && chain.parent == parent; };
  auto chain = std::find_if(setups_.begin(), setups_.end(), same);
  if (chain == setups_.end()) chain = setups_.insert(chain, {parent, {}});
  chain->setups.push_back({std::move(setup), std::move(undo)});
}

// Ranks of one thread wait for each other during set-up, so each gets a thread. A chain goes on
// after a set-up that failed, because other ranks take part in the next one.
Error Group::run_setups() {
  if (setups_.empty()) return {};
  std::vector<std::function<Error()>> jobs;
  jobs.reserve(setups_.size());
  for (const Chain& chain : setups_) {
    jobs.emplace_back([&chain] {
      std::vector<Error> errors;
      errors.reserve(chain.setups.size());
      for (const auto& setup : chain.setups) errors.push_back(without_throwing(setup.run));
      return first_failure(errors);
    });
  }
  return first_failure(run_together(jobs));
}

Request Group::issue(bool driven) {
  Request request = take_request();
  add_messages();
  place_compressed();
  prepare(*request);
  // The memory to which the arguments point moves to the request and keeps its address; the group
  // reuses the request's old memory.
  request->blocks.swap(blocks_);
  request->messages.swap(batches_);
  request->compressed.swap(compressed_);
  issue_all(*request, driven);
  return request;
}

// May throw, since nothing is issued yet.
void Group::prepare(pithRequest& request) {
  const auto on_host = [](const Collected& one) { return !one.stream; };
  request.group.emplace(
      static_cast<int>(std::count_if(collectives_.begin(), collectives_.end(), on_host)));
  for (const Collected& one : collectives_) {
    if (one.stream) continue;
    Engine* engine = &one.communicator->engine();
    auto& engines = request.engines;
    if (std::find(engines.begin(), engines.end(), engine) == engines.end()) {
      engines.push_back(engine);
      request.communicators.push_back(one.communicator);
    }
    request.calls.add().emplace(one.args, *request.group);
  }
}

// Whether an earlier call of the group is on a stream of the same communicator.
bool Group::is_later(const Collected& call) const {
  const auto same = [&](const Collected& one) {
    return one.stream && one.communicator == call.communicator;
  };
  const auto before = std::make_reverse_iterator(&call);
  return std::any_of(before, std::make_reverse_iterator(collectives_.data()), same);
}

// Joins the streams of each communicator that has several: they begin the group and leave it
// together.
void Group::join_streams() {
  for (const Collected& one : collectives_) {
    if (!one.stream || is_later(one)) continue;
    streams_.clear();
    for (const Collected& call : collectives_) {
      if (!call.stream || call.communicator != one.communicator) continue;
      const auto known = std::find(streams_.begin(), streams_.end(), call.stream);
      if (known == streams_.end()) streams_.push_back(call.stream);
    }
    if (Error error = one.communicator->streams().join(streams_)) fail(error);
  }
}

// Issues the calls in order, which is the same on all ranks. If a stream refuses its call, the
// group fails, but later calls are issued all the same, because other ranks take part in them.
void Group::issue_all(pithRequest& request, bool driven) {
  join_streams();
  auto call = request.calls.begin();
  for (const Collected& one : collectives_) {
    if (!one.stream) {
      one.communicator->background().issue(**call++, driven);
    } else {
      HeldCompressors held;
      if (one.compressed) held = HeldCompressors(std::move(one.compressed->compressors));
      const Error error = without_throwing([&] {
        return one.communicator->streams().enqueue(one.args, one.stream, std::move(held),
                                                   is_later(one));
      });
      if (error) fail(error);
    }
  }
  join_streams();
}

// Runs before anything is issued: a call that no thread can drive must not begin.
Error Group::join_background() {
  for (const Collected& one : collectives_) {
    if (one.stream) continue;
    if (Error error = one.communicator->engine().join_background()) return error;
  }
  for (const MessageBatch& batch : batches_) {
    if (batch.stream) continue;
    if (Error error = batch.communicator->engine().join_background()) return error;
  }
  return {};
}

Error Group::run() {
  const Emptied emptied(*this);
  Error error = error_ ? error_ : check_messages();
  if (!error) error = check_captures();
  if (!error) error = shape_compressed();
  if (error) return error;
  const std::array ends = {run_setups(), run_calls()};
  return first_failure(ends);
}

// Also after a set-up that failed: other ranks take part in the calls, and may not in the set-up.
Error Group::run_calls() {
  if (collectives_.empty() && batches_.empty()) return {};
  if (batches_.empty() && collectives_.size() == 1 && !collectives_[0].stream) {
    place_compressed();
    CallRunner& calls = collectives_[0].communicator->calls();
    return std::visit([&](auto& args) { return calls.run(args); }, collectives_[0].args);
  }
  const Request request = issue(true);
  drive_engines(request->engines, [&] { return request->group->done(); });
  return error_ ? error_ : request->group->error();
}

Expected<Request> Group::run_in_background() {
  const Emptied emptied(*this);
  Error error = error_;
  if (!error && !setups_.empty()) {
    error = Error(Code::invalid_usage,
                  "pithGroupEndAsync: communicators are created in groups that end with "
                  "pithGroupEnd");
  }
  if (!error) error = check_messages();
  if (!error) error = check_captures();
  if (!error) error = shape_compressed();
  if (error) return error;
  error = join_background();
  if (error) {  // gradients are kept, but for those that a stream may not have written yet
    for (CompressedBatch& batch : compressed_) {
      if (!batch.stream) batch.communicator->compressors().absorb(batch.tensors);
    }
    return error;
  }
  Request request = issue(false);
  if (error_) request->group->keep(error_);
  return request;
}

}  // namespace pith
