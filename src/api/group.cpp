#include "api/group.hpp"

#include <algorithm>
#include <thread>

namespace pith::api {

Group& Group::of_this_thread() {
  static thread_local Group group;
  return group;
}

Expected<bool> Group::end() {
  if (depth_ == 0) return Error(Code::invalid_usage, "pithGroupEnd without pithGroupStart");
  return --depth_ == 0;
}

void Group::clear() {
  collectives_.clear();
  setups_.clear();
  error_ = Error();
}

// Ranks of one thread wait for each other while they are set up, so each gets a thread.
Error Group::run_setups() {
  std::vector<Error> errors(setups_.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < setups_.size(); ++i) {
    threads.emplace_back([&, i] { errors[i] = setups_[i](); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Error& error : errors) {
    if (error) return error;
  }
  return {};
}

std::unique_ptr<pithRequest> Group::issue(bool driven) {
  auto request = std::make_unique<pithRequest>();
  const auto on_host = [](const Collected& one) { return !one.stream; };
  request->group = std::make_unique<CallGroup>(
      static_cast<int>(std::count_if(collectives_.begin(), collectives_.end(), on_host)));
  for (const Collected& one : collectives_) {
    if (one.stream) continue;
    Engine* engine = &one.communicator->engine();
    auto& engines = request->engines;
    if (std::find(engines.begin(), engines.end(), engine) == engines.end()) {
      engines.push_back(engine);
      request->communicators.push_back(one.communicator);
    }
    request->calls.emplace_back(*one.communicator, one.args, *request->group);
  }
  issue_all(*request, driven);
  return request;
}

// In the order of the calls, which is that of all ranks. A stream that refuses its call is the
// group's error; the calls behind it are issued all the same, for other ranks count on them.
void Group::issue_all(pithRequest& request, bool driven) {
  auto call = request.calls.begin();
  for (const Collected& one : collectives_) {
    if (!one.stream) {
      one.communicator->issue(*call++, driven);
    } else if (Error error = one.communicator->enqueue_on_stream(one.args, one.stream)) {
      fail(error);
    }
  }
}

Error Group::run() {
  Error error = error_ ? error_ : run_setups();
  if (!error && collectives_.size() == 1 && !collectives_[0].stream) {
    error = collectives_[0].communicator->run(collectives_[0].args);
  } else if (!error && !collectives_.empty()) {
    const std::unique_ptr<pithRequest> request = issue(true);
    drive_engines(request->engines, [&] { return request->group->done(); });
    error = error_ ? error_ : request->group->error();
  }
  clear();
  return error;
}

Expected<std::unique_ptr<pithRequest>> Group::run_in_background() {
  Error error = error_;
  if (!error && !setups_.empty()) {
    error = Error(Code::invalid_usage,
                  "pithGroupEndAsync: communicators are created in groups that end with "
                  "pithGroupEnd");
  }
  if (error) {
    clear();
    return error;
  }
  std::unique_ptr<pithRequest> request = issue(false);
  if (error_) request->group->keep(error_);
  clear();
  return request;
}

}  // namespace pith::api
