// hdfs://host:port/path: Hadoop's file system, by WebHDFS. The server that is asked redirects to one that has the bytes.
#include <algorithm>
#include <cstdlib>

#include "fetch/source.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/json_text.hpp"

namespace shoal::fetch {
namespace {

using nlohmann::json;

constexpr const char* kDefaultPort = ":9870";

class WebHdfsSource final : public Source {
 public:
  WebHdfsSource(const Location& location, HttpClient& client, const Course& course)
      : location_(location), client_(client), course_(course), host_(location.authority) {
    const std::size_t colon = host_.rfind(':');
    if (colon == host_.npos || host_.find(']', colon) != host_.npos) host_ += kDefaultPort;
  }

  Result<std::optional<std::vector<RemoteFile>>> list(const std::string& directory, const std::string& prefix) override {
    const std::string what = location_.url_of(directory, {});
    std::string text;
    SHOAL_ASSIGN_OR_RETURN(const HttpReply reply, ask("LISTSTATUS", what, directory, text));
    if (!reply.is_success()) return error_of(reply, what, *this);
    return read(what, [&] {
      std::vector<RemoteFile> files;
      const json answer = parse_json(text);
      for (const json& each : answer.at("FileStatuses").at("FileStatus")) {
        RemoteFile file = to_file(each, each.at("pathSuffix").get<std::string>());
        if (is_file_name(file.name) && file.name.starts_with(prefix)) files.push_back(std::move(file));
      }
      return std::optional(std::move(files));
    });
  }

  Result<std::optional<RemoteFile>> find(const std::string& directory, const std::string& name) override {
    const std::string what = location_.url_of(directory, name);
    std::string text;
    SHOAL_ASSIGN_OR_RETURN(const HttpReply reply, ask("GETFILESTATUS", what, directory + name, text));
    if (reply.status == 404) return std::optional<RemoteFile>();
    if (!reply.is_success()) return error_of(reply, what, *this);
    return read(what, [&] { return std::optional(to_file(parse_json(text).at("FileStatus"), name)); });
  }

  HttpRequest request(const std::string& directory, const std::string& name, std::uint64_t from,
                      std::vector<std::string>) const override {
    const std::string offset = from > 0 ? format("&offset={}", from) : "";
    return {.url = url("OPEN", directory + name) + offset, .from = from, .has_from_in_url = true, .allows_http = true};
  }

  std::string explanation(const HttpReply& reply) const override {
    const json answer = json::parse(reply.text, nullptr, false);
    const auto found = answer.is_object() ? answer.find("RemoteException") : answer.end();
    if (!answer.is_object() || found == answer.end() || !found->is_object()) return {};
    const auto text = [&](const char* key) {
      const auto value = found->find(key);
      return value != found->end() && value->is_string() ? value->get<std::string>() : std::string();
    };
    return format("{}: {}", text("exception"), text("message"));
  }

  std::string remedy() const override {
    return "set HADOOP_USER_NAME to a user who may read it. Shoal knows no Kerberos; and a namenode in standby refuses "
           "everybody, so name the active one";
  }

 private:
  std::string url(std::string_view operation, const std::string& path) const {
    const char* const user = std::getenv("HADOOP_USER_NAME");
    const std::string as = user && *user != '\0' ? "&user.name=" + percent_encoded(user) : "";
    return format("http://{}/webhdfs/v1/{}?op={}{}", host_, percent_encoded(path, true), operation, as);
  }

  Result<HttpReply> ask(std::string_view operation, const std::string& what, const std::string& path, std::string& text) {
    const auto request = [&] { return HttpRequest{.url = url(operation, path), .allows_http = true}; };
    auto reply = get_text(client_, course_, what, request, text);
    // There is one object a name: what would be refused is not parsed.
    const auto objects = static_cast<std::size_t>(std::ranges::count(text, '{'));
    if (reply.ok() && objects > kMostNames + 2) return too_many_names(what);
    return reply;
  }

  static RemoteFile to_file(const json& status, std::string name) {
    const auto size = status.at("length").get<std::uint64_t>();
    return {.name = std::move(name),
            .is_directory = status.at("type").get<std::string>() == "DIRECTORY",
            .size_bytes = size,
            .version = format("{}:{}:{}", status.value("fileId", std::uint64_t{0}),
                              status.at("modificationTime").get<std::uint64_t>(), size)};
  }

  template <typename Read>
  static auto read(const std::string& what, Read reading) -> Result<decltype(reading())> {
    try {
      return reading();
    } catch (const std::exception& error) {
      return data_loss("{}: the server's answer is not WebHDFS: {}. The port must be that of WebHDFS, usually 9870", what,
                       error.what());
    }
  }

  const Location location_;
  HttpClient& client_;
  const Course& course_;
  std::string host_;
};

}  // namespace

std::unique_ptr<Source> make_webhdfs_source(const Location& location, HttpClient& client, const Course& course) {
  return std::make_unique<WebHdfsSource>(location, client, course);
}

}  // namespace shoal::fetch
