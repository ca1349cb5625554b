//! `spillgate inspect URL` against servers that behave, and servers that do not.
//!
//! Each test talks to a tiny server of its own on 127.0.0.1, and to the real binary.
//!
//! Worked number: a server that accepts and never answers is given up after 3 s.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::mpsc::{Receiver, channel};

const PAGE: &str = "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 12\n\
    vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 3\n\
    vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.5\n";

/// Serves connections with `answer`, one after the other; sends each request's text.
fn serve(answer: fn(&mut TcpStream)) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let (sender, requests) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = Vec::new();
            let mut chunk = [0; 1_024];
            while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                match stream.read(&mut chunk) {
                    Ok(read) if read > 0 => request.extend_from_slice(&chunk[..read]),
                    _ => break,
                }
            }
            if sender.send(String::from_utf8_lossy(&request).into_owned()).is_err() {
                return;
            }
            answer(&mut stream);
        }
    });
    (format!("http://{address}/metrics"), requests)
}

fn inspect(url: &str) -> Output {
    let mut command = Command::new(spillgate_e2e::spillgate());
    // A proxy of the environment must not see pod addresses.
    command.env("http_proxy", "http://127.0.0.1:1").env("HTTP_PROXY", "http://127.0.0.1:1");
    command.args(["inspect", "-o", "json", url]).output().expect("the binary runs")
}

fn complaint(output: &Output) -> String {
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn write(stream: &mut TcpStream, text: &str) {
    let _ = stream.write_all(text.as_bytes());
}

#[test]
fn a_page_is_fetched_and_plain_text_is_asked_for_first() {
    let (url, requests) = serve(|stream| {
        let length = PAGE.len();
        write(stream, &format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{PAGE}"));
    });
    let output = inspect(&url);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&report["signal"], &report["waiting"]), (&"Full".into(), &3.into()));
    let request = requests.recv().expect("a request").to_ascii_lowercase();
    assert!(request.starts_with("get /metrics http/1.1\r\n"), "{request}");
    assert!(request.contains("accept: text/plain;version=0.0.4"), "{request}");
}

#[test]
fn an_error_status_is_said_and_is_no_page() {
    let (url, _requests) = serve(|stream| {
        write(stream, "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 4\r\n\r\nx 1\n");
    });
    let output = inspect(&url);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("500"), "{output:?}");
}

#[test]
fn a_redirect_is_not_followed() {
    let (url, requests) = serve(|stream| {
        let head = "HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n";
        write(stream, head);
    });
    let output = inspect(&url);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("redirects are not followed"), "{output:?}");
    assert!(requests.recv().is_ok());
    assert!(requests.try_recv().is_err(), "a second request was made");
}

#[test]
fn an_endless_body_is_given_up_at_the_limit() {
    let (url, _requests) = serve(|stream| {
        write(stream, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
        let chunk = "vllm:num_requests_running 1\n".repeat(1_000);
        while stream.write_all(chunk.as_bytes()).is_ok() {}
    });
    let output = inspect(&url);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(complaint(&output).contains("larger than"), "{output:?}");
}

#[test]
fn a_body_cut_short_is_an_error_and_no_short_page() {
    let (url, _requests) = serve(|stream| {
        write(stream, &format!("HTTP/1.1 200 OK\r\ncontent-length: 90000\r\n\r\n{PAGE}"));
    });
    let output = inspect(&url);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(complaint(&output).contains("cannot fetch"), "{output:?}");
}

#[test]
fn a_server_that_hangs_is_given_up_in_time() {
    let (url, requests) = serve(|stream| {
        // Holds the connection until the other side goes.
        let _ = stream.read(&mut [0]);
    });
    let output = inspect(&url);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(complaint(&output).contains("cannot fetch"), "{output:?}");
    assert!(requests.recv().is_ok());
}

#[test]
fn nobody_listening_is_an_error() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = free.local_addr().expect("an address");
    drop(free);
    let output = inspect(&format!("http://{address}/metrics"));
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("cannot fetch"), "{output:?}");
}
