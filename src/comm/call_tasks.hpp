// Creates the coroutine that a call runs, by its kind, and completes the call's arguments.
#pragma once

#include <new>
#include <variant>

#include "collectives/call_args.hpp"
#include "collectives/dense/short_call.hpp"
#include "collectives/pair_windows.hpp"
#include "collectives/short_message.hpp"
#include "collectives/sparse/compressed_calls.hpp"
#include "comm/links.hpp"

namespace pith {

class CallTasks {
 public:
  explicit CallTasks(Links& links)
      : links_(links), windows_(static_cast<std::size_t>(links.size())) {}

  // How point-to-point messages to each peer are cut into pieces.
  const PairWindows& windows() const { return windows_; }

  // Fills in the arguments that the communicator knows: sizes and tuning.
  void complete(CollectiveArgs& args) const;
  void complete(CompressedArgs& args) const { args.tuning = links_.model().tuning(); }
  void complete(PairArgs& args) const { args.chunk_bytes = links_.model().tuning().chunk_bytes; }
  void complete(CallArgs& args) const {
    std::visit([this](auto& kind) { complete(kind); }, args);
  }

  // Makes a short collective, or moves a lone short message, without a task, for a thread that
  // waits for the call.
  bool make_at_once(Call& call, const CollectiveArgs& args, Engine& engine, Error& result) const {
    return make_short_call(call, args, links_.model().algorithm(args), engine, result);
  }
  bool make_at_once(Call& call, const PairArgs& args, Engine& engine, Error& result) {
    return args.messages.size() == 1 &&
           pith::move_at_once(call, args.messages[0], windows_, args.chunk_bytes, engine, result);
  }

  // With the engine's token. Null if there is no memory for the task.
  template <class Args>
  Task<Error> start(Call& call, const Args& args) {
    try {
      return task_of(call, args);
    } catch (const std::bad_alloc&) {
      return {};
    }
  }

 private:
  void complete_uneven(CollectiveArgs& args) const;
  Task<Error> task_of(Call& call, const CollectiveArgs& args);
  Task<Error> task_of(Call& call, const CompressedArgs& args);
  Task<Error> task_of(Call& call, const PairArgs& args);
  Task<Error> task_of(Call& call, const CallArgs& args) {
    return std::visit([&](const auto& kind) { return task_of(call, kind); }, args);
  }

  Links& links_;
  PairWindows windows_;
  CompressedCalls compressed_;
};

}  // namespace pith
