#[test]
#[ignore = "x"]
fn try_it() -> anyhow::Result<()> {
    let iterator = super::SocketIterator::load()?;
    let pid = std::env::var("PID")?.parse()?;
    println!("{:?}", iterator.look(pid)?);
    println!("{:?}", iterator.look(pid)?);
    Ok(())
}
