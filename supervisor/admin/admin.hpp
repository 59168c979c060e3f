// Answers control requests: what is served, what has happened, and wishes that something else be served.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "supervisor/fleet/fleet.hpp"
#include "supervisor/plane/data_plane.hpp"
#include "supervisor/plane/shared_rate.hpp"

namespace shoal::supervisor {

///   Threads  thread-bound
class Admin {
 public:
  /// `plane`, `fleet` and `timers` outlive this. `stop` is called with the reason when a client asks the daemon to end.
  Admin(DataPlane& plane, Fleet& fleet, Timers& timers, std::string directory, std::function<void(const std::string& why)> stop);

  /// {"what": ..., ...}; the answer may disconnect the client.
  void handle(Client& client, std::uint64_t seq, std::span<const std::byte> json);
  void client_left(const Client& client);
  /// What `describe` answers for the models that are served now, as far as a WELCOME may hold it.
  std::vector<std::string_view> descriptions();
  void wish_answered(const AnswerCaller& answer);
  /// What is served, or may be served soon, has changed: descriptions that wait may have their answer now, and clients that
  /// know kDescriptions are told the new ones.
  void services_changed();

 private:
  struct Question {
    ClientId client = 0;
    std::uint64_t seq = 0;  // 0: the client did not ask
  };
  struct WaitingDescribe {
    Question question;
    std::string model;
    std::uint64_t version;
  };

  void handle_wish(Question question, std::string_view what, const nlohmann::json& asked);
  ModelVersion* find_described(const Service* service, std::uint64_t version) const;
  void answer_describes();
  bool may_wait(const Client& client) const;
  void wait_for_description(Client& client, std::uint64_t seq, const std::string& model, std::uint64_t version);
  void tell_of_changes();
  void tell(const Client& client, const std::string& name);
  void describe(Question question, const std::string& name, std::uint64_t version, bool is_counted);
  void send_trace(Question question, const std::string& model, std::uint64_t pid);
  Status check_rate(const Client& client, std::uint64_t& wait_ms);
  void charge(ClientId client, std::uint64_t bytes);
  void reply_counted(Question question, const std::string& json);
  void reply(Question question, const Status& status, const std::string& json, std::uint32_t retry_after_ms = 0);
  void refuse(Question question, const Status& why, std::uint32_t retry_after_ms = 0) {
    reply(question, why, "", retry_after_ms);
  }

  std::string list_json() const;
  std::string stats_json(bool with_others) const;
  std::string_view service_state(const Service& service) const;
  nlohmann::json finding_json(const Service& service, std::uint64_t now_ns) const;
  nlohmann::json version_json(const Service& service, const CatalogVersion& version, std::uint64_t now_ns,
                              bool with_others) const;

  DataPlane& plane_;
  Fleet& fleet_;
  const std::string directory_;
  const std::function<void(const std::string&)> stop_;
  const std::uint64_t started_ns_;
  SharedRate rate_{64 << 20};  // bytes of answers
  std::deque<WaitingDescribe> waiting_describes_;
  std::map<std::uint32_t, VersionId> told_;  // of each service: the version whose description the clients were told
  std::size_t describes_due_ = 0;            // so many of the first ones may have their answer now
  Timer answer_describes_;                   // at once, while some are due
};

}  // namespace shoal::supervisor
