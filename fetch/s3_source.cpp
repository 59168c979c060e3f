// s3://bucket/prefix: Amazon S3 and what speaks its language (MinIO, Ceph, ...).
#include <algorithm>
#include <ctime>
#include <pugixml.hpp>

#include "fetch/aws_settings.hpp"
#include "fetch/sigv4.hpp"
#include "fetch/source.hpp"
#include "shm/base/errors.hpp"

namespace shoal::fetch {
namespace {

constexpr std::size_t kMostPages = kMostNames / 1000;  // S3 has so many names in a page
constexpr std::size_t kLongestToken = 1 << 14;         // it becomes part of a URL

class S3Source final : public Source {
 public:
  S3Source(const Location& location, AwsSettings settings, HttpClient& client, const Course& course)
      : location_(location), settings_(std::move(settings)), client_(client), course_(course) {
    const std::string& bucket = location.authority;
    const bool is_china = settings_.region.starts_with("cn-");
    const std::string amazon = format("s3.{}.amazonaws.com{}", settings_.region, is_china ? ".cn" : "");
    // A certificate of *.s3.REGION.amazonaws.com is none for names with further dots.
    const bool names_host = settings_.endpoint.empty() && bucket.find('.') == bucket.npos;
    base_ = !settings_.endpoint.empty() ? settings_.endpoint : format("https://{}{}", names_host ? bucket + "." : "", amazon);
    if (!names_host) bucket_path_ = "/" + bucket;
  }

  Result<std::optional<std::vector<RemoteFile>>> list(const std::string& directory, const std::string& prefix) override {
    std::vector<RemoteFile> files;
    std::map<std::string, std::string> query{{"list-type", "2"}, {"delimiter", "/"}, {"prefix", directory + prefix}};
    for (std::size_t page = 0; page < kMostPages && files.size() <= kMostNames; ++page) {
      const std::string what = location_.url_of(directory, prefix);
      std::string text;
      const auto request = [&] { return make("/", query, 0, {}); };
      SHOAL_ASSIGN_OR_RETURN(const HttpReply reply, get_text(client_, course_, what, request, text));
      if (!reply.is_success()) return error_of(reply, what + " (listed)", *this);
      pugi::xml_document document;
      const pugi::xml_node list =
          document.load_buffer(text.data(), text.size()) ? document.child("ListBucketResult") : pugi::xml_node();
      const std::string_view next = list.child_value("NextContinuationToken");
      if (!list || next.size() > kLongestToken)
        return data_loss("{}: the server's answer is no list of S3: is AWS_ENDPOINT_URL right?", what);
      take_names(list, directory, files);
      query["continuation-token"] = next;
      const bool is_last = std::string_view(list.child_value("IsTruncated")) != "true";
      if (is_last && files.size() <= kMostNames) return std::optional(std::move(files));
    }
    return too_many_names(location_.url_of(directory, prefix));
  }

  HttpRequest request(const std::string& directory, const std::string& name, std::uint64_t from,
                      std::vector<std::string> headers) const override {
    return make("/" + directory + name, {}, from, std::move(headers));
  }

  std::string explanation(const HttpReply& reply) const override {
    pugi::xml_document document;
    if (!document.load_buffer(reply.text.data(), reply.text.size())) return region_of(reply);
    const pugi::xml_node error = document.child("Error");
    return format("{}: {}", error.child_value("Code"), error.child_value("Message")) + region_of(reply);
  }

  std::string remedy() const override {
    if (settings_.credentials.empty()) {
      return "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write them to ~/.aws/credentials";
    }
    return format("the credentials of access key {} do not allow it", settings_.credentials.access_key);
  }

 private:
  static void take_names(const pugi::xml_node& list, const std::string& directory, std::vector<RemoteFile>& files) {
    const auto name_of = [&](const char* key) {
      const std::string_view text = key;
      return text.starts_with(directory) ? std::string(text.substr(directory.size())) : std::string();
    };
    for (const pugi::xml_node& each : list.children("Contents")) {
      RemoteFile file{.name = name_of(each.child_value("Key"))};
      if (is_file_name(file.name)) files.push_back(std::move(file));
    }
    for (const pugi::xml_node& each : list.children("CommonPrefixes")) {
      RemoteFile found{.name = name_of(each.child_value("Prefix")), .is_directory = true};
      if (found.name.ends_with('/')) found.name.pop_back();
      if (is_file_name(found.name)) files.push_back(std::move(found));
    }
  }

  std::string region_of(const HttpReply& reply) const {
    const std::string region = reply.header("x-amz-bucket-region");
    return region.empty() || region == settings_.region ? "" : format(" (the bucket is in {}: set AWS_REGION)", region);
  }

  /// `key` begins with '/'.
  HttpRequest make(const std::string& key, const std::map<std::string, std::string>& query, std::uint64_t from,
                   std::vector<std::string> headers) const {
    const std::size_t host = base_.find("://") + 3;
    const std::size_t path = std::min(base_.find('/', host), base_.size());
    AwsRequest asked{.host = base_.substr(host, path - host),
                     .path = base_.substr(path) + bucket_path_ + percent_encoded(key, true),
                     .query = query,
                     .payload_sha256 = std::string(kEmptySha256),
                     .region = settings_.region,
                     .service = "s3"};
    const std::string text = query_text(query);
    HttpRequest request{.url = base_.substr(0, path) + asked.path + (text.empty() ? "" : "?" + text),
                        .headers = std::move(headers),
                        .from = from,
                        .allows_http = true,  // the endpoint is http:// itself
                        .ca_bundle = settings_.ca_bundle};
    const std::string_view port = base_.starts_with("https:") ? ":443" : ":80";
    if (asked.host.ends_with(port)) asked.host.resize(asked.host.size() - port.size());  // as curl sends it
    if (!settings_.credentials.empty()) request.proofs = s3_headers(std::move(asked), settings_.credentials, std::time(nullptr));
    return request;
  }

  const Location location_;
  const AwsSettings settings_;
  HttpClient& client_;
  const Course& course_;
  std::string base_, bucket_path_;
};

}  // namespace

Result<std::unique_ptr<Source>> make_s3_source(const Location& location, HttpClient& client, const Course& course) {
  SHOAL_ASSIGN_OR_RETURN(AwsSettings settings, read_aws_settings());
  return std::unique_ptr<Source>(std::make_unique<S3Source>(location, std::move(settings), client, course));
}

}  // namespace shoal::fetch
